//! The hosts: one address a line, in the order of the processes.

use std::net::{IpAddr, ToSocketAddrs};

use crate::error::ClusterError;

/// Reads the hosts: one `HOST:PORT` a line, the first for process 0. Empty lines, and what follows `#`, say nothing. With
/// `processes`, there must be so many.
///
/// ```
/// let hosts = millpond_cluster::parse_hosts("a:7000 # the leader\n\nb:7000\n", Some(2)).unwrap();
/// assert_eq!(hosts, ["a:7000", "b:7000"]);
/// ```
///
/// # Errors
/// When a line is no address, an address stands twice, or the number is another.
pub fn parse_hosts(text: &str, processes: Option<u32>) -> Result<Vec<String>, ClusterError> {
    let mut hosts: Vec<String> = Vec::new();
    for (line, whole) in text.lines().enumerate() {
        let host = whole.split('#').next().unwrap_or_default().trim();
        if host.is_empty() {
            continue;
        }
        if !is_address(host) {
            return Err(ClusterError::BadHost { line: line + 1, text: host.to_owned() });
        }
        if let Some(first) = hosts.iter().position(|known| known.eq_ignore_ascii_case(host)) {
            return Err(ClusterError::DuplicateHost { host: host.to_owned(), first, second: hosts.len() });
        }
        hosts.push(host.to_owned());
    }
    match processes {
        Some(processes) if hosts.len() != processes as usize => {
            Err(ClusterError::HostCount { hosts: hosts.len(), processes })
        }
        _ => Ok(hosts),
    }
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    let has_space = host.chars().any(char::is_whitespace);
    !host.is_empty() && !bare_ipv6 && !has_space && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// The host of a `HOST:PORT`.
pub(crate) fn host_name(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Whether only this machine can reach `address`. An address that cannot be resolved is taken for one that others can.
#[must_use]
pub fn is_loopback(address: &str) -> bool {
    let addresses = address.to_socket_addrs();
    addresses.is_ok_and(|mut addresses| {
        addresses.all(|address| match address.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_in_order_and_wrong_ones_are_named() {
        let text = "# three\n 10.0.0.1:7000\n[::1]:7001 # v6\n\njob-2.job:7000\n";
        assert_eq!(parse_hosts(text, Some(3)).unwrap(), ["10.0.0.1:7000", "[::1]:7001", "job-2.job:7000"]);
        let wrong = |text, processes| parse_hosts(text, processes).unwrap_err().to_string();
        assert_eq!(wrong("a:1\nb:2\nA:1\n", None), "A:1 is process 0 and process 2 in the hosts");
        assert_eq!(wrong("a:1\n", Some(2)), "the hosts name 1 processes, not 2");
        for bad in ["a", "a:", ":7000", "a:0", "a:70000", "::1:7000", "a b:7000"] {
            assert_eq!(wrong(bad, None), format!("line 1 of the hosts is {bad:?}, not HOST:PORT"));
        }
    }

    #[test]
    fn loopback_is_known() {
        assert!(is_loopback("127.0.0.2:80") && is_loopback("[::1]:80"));
        assert!(!is_loopback("0.0.0.0:80") && !is_loopback("nothing"));
    }
}
