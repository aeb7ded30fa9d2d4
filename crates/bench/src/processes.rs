//! A workload in several processes of this machine: `processes=N`, each with `parallelism` workers.
//!
//! The process that was called is process 0, and starts the others: the same program with the same parameters, `process=I` and
//! `hosts=…`. With `tls=DIRECTORY` (feature `tls`) they use the certificates there: `process.pem`, `process.key`, `ca.pem`. Each
//! prints its own line; that of process 0 holds the sums.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use millpond_jobmanager::{ClusterSettings, TlsSettings};

use crate::parameters::Parameters;

/// Where this process stands, if there are several.
pub(crate) fn cluster(parameters: &Parameters) -> Option<ClusterSettings> {
    let hosts: Vec<String> = parameters.text("hosts", "").split(',').map(str::to_owned).collect();
    let process = parameters.text("process", "0").parse().ok()?;
    let directory = parameters.text("tls", "");
    let at = |file: &str| Path::new(&directory).join(file);
    let tls = (!directory.is_empty()).then(|| TlsSettings {
        certificate: at("process.pem"),
        key: at("process.key"),
        authority: at("ca.pem"),
        name: None,
    });
    (hosts.len() > 1).then(|| ClusterSettings { process, hosts, tls, ..ClusterSettings::default() })
}

/// Number of processes.
pub(crate) fn count(parameters: &Parameters) -> u64 {
    parameters.number("processes", 1).unwrap_or(1).max(1)
}

/// The other processes of a workload.
pub(crate) struct Others {
    children: Vec<Child>,
}

impl Others {
    /// Starts them; returns the parameters of this process, which lead it to them.
    pub(crate) fn start(workload: &str, parameters: &Parameters) -> Result<(Parameters, Others), String> {
        let processes = count(parameters);
        let failed = |error: std::io::Error| error.to_string();
        let listeners: Result<Vec<_>, _> = (0..processes).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
        let listeners = listeners.map_err(failed)?;
        let hosts: Result<Vec<String>, _> =
            listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect();
        let own = parameters.clone().with("hosts", &hosts.map_err(failed)?.join(","));
        drop(listeners);
        let program = std::env::current_exe().map_err(failed)?;
        let start = |process: u64| {
            let arguments = own.clone().with("process", &process.to_string());
            Command::new(&program).arg(workload).args(arguments.to_arguments()).stdout(Stdio::piped()).spawn()
        };
        let children: Result<Vec<Child>, _> = (1..processes).map(start).collect();
        Ok((own, Others { children: children.map_err(failed)? }))
    }

    /// Waits for their lines, and adds what they have counted to `line`.
    pub(crate) fn add_to(self, line: &mut serde_json::Value) -> Result<(), String> {
        let text = |line: &serde_json::Value| line["checksum"].as_str().and_then(|text| text.parse().ok());
        let mut checksum: u64 = text(line).unwrap_or_default();
        let mut peaks = vec![line["peak_rss_mb"].clone()];
        for child in self.children {
            let output = child.wait_with_output().map_err(|error| error.to_string())?;
            let other: serde_json::Value =
                serde_json::from_slice(&output.stdout).map_err(|error| format!("another process: {error}"))?;
            checksum = checksum.wrapping_add(text(&other).unwrap_or_default());
            for sum in ["outputs", "cpu_s"] {
                let number = |line: &serde_json::Value| line[sum].as_f64().unwrap_or_default();
                line[sum] = (number(line) + number(&other)).into();
            }
            peaks.push(other["peak_rss_mb"].clone());
        }
        let records = line["measured_records"].as_f64().unwrap_or_default();
        let cpu_s = line["cpu_s"].as_f64().unwrap_or_default();
        line["records_per_cpu_s"] = (records / cpu_s.max(0.01)).round().into();
        line["checksum"] = checksum.to_string().into();
        line["peak_rss_mb"] = peaks.into();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_its_place_from_its_parameters() {
        let parse =
            |text: &str| Parameters::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap();
        assert_eq!(cluster(&parse("records=1k")), None);
        let parameters = parse("hosts=a:1,b:2 processes=2 records=1k").with("process", "1");
        let place = cluster(&parameters).unwrap();
        assert_eq!((place.process, place.hosts.len(), count(&parameters)), (1, 2, 2));
        assert_eq!(parameters.to_arguments(), ["hosts=a:1,b:2", "process=1", "processes=2", "records=1k"]);
    }
}
