//! The settings of a job that runs in several processes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use millpond_jobmanager::{ClusterSettings, TlsSettings, parse_hosts};

use super::value::parse_number;
use super::{Reader, Setting, parse_positive_duration_ms};
use crate::error::CliError;
use crate::units::parse_duration_ms;

/// The variable that holds the name of a pod, or of a machine.
const HOSTNAME: &str = "HOSTNAME";
/// In the place of an index: the number at the end of the pod's name.
const POD: &str = "pod";
/// What a process that does not lead keeps locally is in a directory of its own: `process-1`.
const BELOW_STATE: &str = "process-";

/// The name of this pod or machine among `variables`.
pub(super) fn host_name(variables: &[(OsString, OsString)]) -> Option<String> {
    let (_, value) = variables.iter().find(|(name, _)| name == HOSTNAME)?;
    value.to_str().map(str::to_owned)
}

/// Reads the settings; `None` for a job in one process.
pub(super) fn read(reader: &Reader<'_>, host_name: Option<&str>) -> Result<Option<ClusterSettings>, CliError> {
    let defaults = ClusterSettings::default();
    let heartbeat_ms = reader.read(Setting::Heartbeat, parse_positive_duration_ms)?;
    let lost_after_ms = reader.read(Setting::LostAfter, |text| {
        let lost_after_ms = parse_positive_duration_ms(text)?;
        match lost_after_ms >= 2 * heartbeat_ms {
            true => Ok(lost_after_ms),
            false => Err("expected at least twice the heartbeat".to_owned()),
        }
    })?;
    let wait_ms = reader.read(Setting::PeerWait, parse_duration_ms)?;
    let listen = reader.read_if_given(Setting::Listen, |text| {
        parse_hosts(text, Some(1)).map(|_| text.to_owned()).map_err(|error| error.to_string())
    })?;
    let tls = read_tls(reader)?;
    let processes = reader.read_if_given(Setting::Processes, |text| parse_number::<u32>(text, 1))?;
    let hosts = reader.read_if_given(Setting::Hosts, |text| read_hosts(text, processes))?;
    let given_index = |text: &str| if text == POD { ordinal(host_name) } else { parse_number(text, 0) };
    reader.read_if_given(Setting::Process, given_index)?;
    let hosts = match (processes, hosts) {
        (None | Some(1), None) => return Ok(None),
        (Some(_), None) => return Err(CliError::Missing { setting: Setting::Hosts }),
        (_, Some(hosts)) => hosts,
    };
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    if count < 2 {
        return Ok(None);
    }
    let process = reader.read(Setting::Process, |text| {
        let process = given_index(text)?;
        match process < count {
            true => Ok(process),
            false => Err(format!("there is no process {process} among {count}: they are counted from 0")),
        }
    })?;
    Ok(Some(ClusterSettings { process, hosts, listen, wait_ms, heartbeat_ms, lost_after_ms, tls, ..defaults }))
}

/// Reads where the certificates are: three files, or none.
fn read_tls(reader: &Reader<'_>) -> Result<Option<TlsSettings>, CliError> {
    let file = |setting| reader.read_if_given(setting, parse_file);
    let (certificate, key, authority) = (file(Setting::TlsCertificate)?, file(Setting::TlsKey)?, file(Setting::TlsCa)?);
    let name = reader.read_if_given(Setting::TlsName, |text| match text {
        "" => Err("expected a name".to_owned()),
        name => Ok(name.to_owned()),
    })?;
    let missing = |setting| CliError::Missing { setting };
    match (certificate, key, authority) {
        (None, None, None) if name.is_none() => Ok(None),
        (None, ..) => Err(missing(Setting::TlsCertificate)),
        (_, None, _) => Err(missing(Setting::TlsKey)),
        (.., None) => Err(missing(Setting::TlsCa)),
        (Some(certificate), Some(key), Some(authority)) => Ok(Some(TlsSettings { certificate, key, authority, name })),
    }
}

fn parse_file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("expected the path of a file".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// Reads a list with commas, one host, or a file.
fn read_hosts(text: &str, processes: Option<u32>) -> Result<Vec<String>, String> {
    let one_host = !Path::new(text).exists() && parse_hosts(text, Some(1)).is_ok();
    let text = if text.contains(',') || one_host {
        text.replace(',', "\n")
    } else {
        std::fs::read_to_string(text).map_err(|error| format!("cannot read it: {error}"))?
    };
    parse_hosts(&text, processes).map_err(|error| error.to_string())
}

/// The number at the end of a pod's name: 2 of `job-2`.
fn ordinal(host_name: Option<&str>) -> Result<u32, String> {
    let name = host_name.ok_or_else(|| format!("the variable {HOSTNAME} is not set"))?;
    let number = name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
    number.ok_or_else(|| format!("{HOSTNAME} is {name:?}, which does not end in a dash and a number"))
}

/// The local directory of this process: process 0 has that of the job, every other one a directory below it.
pub(super) fn local_directory(directory: Option<PathBuf>, cluster: Option<&ClusterSettings>) -> Option<PathBuf> {
    match cluster {
        Some(cluster) if cluster.process > 0 => {
            directory.map(|directory: PathBuf| Path::join(&directory, format!("{BELOW_STATE}{}", cluster.process)))
        }
        _ => directory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_pod_is_at_the_end_of_its_name() {
        assert_eq!(ordinal(Some("word-count-12")), Ok(12));
        assert!(ordinal(Some("machine")).unwrap_err().contains("\"machine\""));
        assert!(ordinal(None).is_err());
    }

    #[test]
    fn only_process_0_has_the_directory_of_the_job() {
        let cluster = |process| ClusterSettings { process, ..ClusterSettings::default() };
        let at = |cluster: Option<&ClusterSettings>| local_directory(Some(PathBuf::from("s")), cluster).unwrap();
        assert_eq!([at(None), at(Some(&cluster(0)))], [PathBuf::from("s"), PathBuf::from("s")]);
        assert_eq!(at(Some(&cluster(2))), PathBuf::from("s/process-2"));
        assert_eq!(local_directory(None, Some(&cluster(2))), None);
    }
}
