//! The command `local-cluster`: starts all processes of a job on this machine, and starts again those that die.
//!
//! Owns the children and nothing of the job: they find each other by the variables that they are given. A process that says that
//! starting again does not help (exit codes 2, 3 and 4) ends all others; a signal is passed on.

mod certificates;

use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::error::CliError;
use crate::exit;
use crate::settings::Setting;
use crate::supervisor;
use certificates::Certificates;

/// How often children and signals are looked at.
const TICK: Duration = Duration::from_millis(20);
/// The pause before a process is started again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After so long without dying a process counts as healthy.
const CALM: Duration = Duration::from_secs(60);

/// Arguments of `local-cluster`.
#[derive(Debug, Args)]
pub(crate) struct LocalClusterArguments {
    /// Number of processes
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) processes: u32,
    /// The first of so many ports in a row, on which the processes listen [default: free ones]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// How often one process is started again within a minute before all are ended
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) restarts: u32,
    /// Let the processes use mutual TLS, with certificates made by openssl for this run
    #[arg(long)]
    pub(crate) tls: bool,
    /// The job with its arguments
    #[arg(last = true, required = true, value_name = "JOB")]
    pub(crate) job: Vec<String>,
}

/// Runs the processes until all have ended; returns the exit code.
///
/// # Errors
/// When there are no ports, signals cannot be listened for, or a process cannot be started.
pub(crate) fn run(arguments: &LocalClusterArguments) -> Result<u8, CliError> {
    let hosts = hosts(arguments)?;
    let (signals, handle) = listen()?;
    let certificates = arguments.tls.then(Certificates::make).transpose()?;
    let mut cluster = Cluster { arguments, hosts, certificates, children: Vec::new() };
    let outcome = cluster.run(&signals);
    handle.close();
    if outcome.is_err() {
        cluster.signal(Signal::KILL);
    }
    outcome
}

fn hosts(arguments: &LocalClusterArguments) -> Result<Vec<String>, CliError> {
    let no_port = |source| CliError::NoPort { source };
    if let Some(first) = arguments.port {
        let last = u32::from(first) + arguments.processes - 1;
        let last = u16::try_from(last).map_err(|_| no_port(io::Error::other(format!("there is no port {last}"))))?;
        return Ok((first..=last).map(|port| format!("127.0.0.1:{port}")).collect());
    }
    // Held together, so that they differ.
    let listeners: io::Result<Vec<_>> = (0..arguments.processes).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let listeners = listeners.map_err(no_port)?;
    let addresses = listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string()));
    addresses.collect::<io::Result<Vec<_>>>().map_err(no_port)
}

/// Counts signals that ask for the end.
fn listen() -> Result<(Arc<AtomicUsize>, Handle), CliError> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|source| CliError::Signals { source })?;
    let (handle, count) = (signals.handle(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    let listen = move || {
        for _ in &mut signals {
            counted.fetch_add(1, Ordering::AcqRel);
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
    thread.map_err(|source| CliError::Signals { source })?;
    Ok((count, handle))
}

struct Cluster<'a> {
    arguments: &'a LocalClusterArguments,
    hosts: Vec<String>,
    certificates: Option<Certificates>,
    children: Vec<Supervised>,
}

/// One process of the job.
struct Supervised {
    process: u32,
    state: ChildState,
    started: Instant,
    /// How often it has died without calm between.
    deaths: u32,
}

enum ChildState {
    Runs(Child),
    Waits { until: Instant },
    Ended(u8),
}

impl Cluster<'_> {
    fn run(&mut self, signals: &AtomicUsize) -> Result<u8, CliError> {
        for process in 0..self.arguments.processes {
            let state = ChildState::Runs(self.start(process)?);
            self.children.push(Supervised { process, state, started: Instant::now(), deaths: 0 });
        }
        let (mut passed_on, mut final_code) = (0, None);
        loop {
            let asked = signals.load(Ordering::Acquire);
            if asked > passed_on {
                self.signal(if passed_on == 0 { Signal::TERM } else { Signal::KILL });
                passed_on = asked;
            }
            let stopping = passed_on > 0 || final_code.is_some();
            if let Some(code) = self.look(stopping)?
                && final_code.is_none()
            {
                final_code = Some(code);
                self.signal(Signal::TERM);
            }
            let codes = self.children.iter().map(|child| match child.state {
                ChildState::Ended(code) => Some(code),
                _ => None,
            });
            if let Some(codes) = codes.collect::<Option<Vec<u8>>>() {
                return Ok(final_code.or(codes.into_iter().max()).unwrap_or(exit::SUCCESS));
            }
            std::thread::sleep(TICK);
        }
    }

    fn start(&self, process: u32) -> Result<Child, CliError> {
        let (program, own) = self.arguments.job.split_first().ok_or(CliError::NoProgram)?;
        let mut command = Command::new(program);
        command.args(own).stdin(Stdio::null());
        supervisor::supervise(&mut command);
        if self.arguments.processes > 1 {
            command
                .env(Setting::Processes.variable(), self.arguments.processes.to_string())
                .env(Setting::Process.variable(), process.to_string())
                .env(Setting::Hosts.variable(), self.hosts.join(","));
        }
        if let Some(certificates) = &self.certificates {
            command
                .env(Setting::TlsCertificate.variable(), certificates.certificate())
                .env(Setting::TlsKey.variable(), certificates.key())
                .env(Setting::TlsCa.variable(), certificates.authority());
        }
        let child = command.spawn().map_err(|source| CliError::Program { program: program.clone(), source })?;
        tracing::info!(process, pid = child.id(), address = self.hosts[process as usize], "started");
        Ok(child)
    }

    /// Looks at every process; returns the code with which all shall end, if there is a reason.
    fn look(&mut self, stopping: bool) -> Result<Option<u8>, CliError> {
        let one_has_finished =
            self.children.iter().any(|child| matches!(child.state, ChildState::Ended(exit::SUCCESS)));
        let mut reason = None;
        for at in 0..self.children.len() {
            let process = self.children[at].process;
            match &mut self.children[at].state {
                ChildState::Runs(child) => {
                    let status = child.try_wait().map_err(|source| self.program_error(source))?;
                    let Some(status) = status else { continue };
                    let allowed = if one_has_finished { 1 } else { self.arguments.restarts };
                    let next = after(&mut self.children[at], status, stopping, allowed);
                    if let ChildState::Ended(code) = next
                        && code != exit::SUCCESS
                    {
                        reason = Some(code);
                    }
                    self.children[at].state = next;
                }
                ChildState::Waits { .. } if stopping => self.children[at].state = ChildState::Ended(exit::SUCCESS),
                ChildState::Waits { until } if Instant::now() >= *until => {
                    let child = self.start(process)?;
                    self.children[at].started = Instant::now();
                    self.children[at].state = ChildState::Runs(child);
                }
                ChildState::Waits { .. } | ChildState::Ended(_) => {}
            }
        }
        Ok(reason)
    }

    fn program_error(&self, source: io::Error) -> CliError {
        CliError::Program { program: self.arguments.job.first().cloned().unwrap_or_default(), source }
    }

    fn signal(&self, signal: Signal) {
        for child in &self.children {
            if let ChildState::Runs(child) = &child.state
                && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
            {
                // It may have ended this moment.
                let _ = kill_process(pid, signal);
            }
        }
    }
}

/// What becomes of a process that has ended.
fn after(child: &mut Supervised, status: ExitStatus, stopping: bool, allowed: u32) -> ChildState {
    let process = child.process;
    match status.code().map(u8::try_from) {
        Some(Ok(exit::SUCCESS)) => {
            tracing::info!(process, "ended");
            ChildState::Ended(exit::SUCCESS)
        }
        Some(Ok(code @ (exit::INVALID | exit::FENCED | exit::CORRUPT))) => {
            tracing::error!(process, code, "ended for good");
            ChildState::Ended(code)
        }
        _ if stopping => ChildState::Ended(exit::FAILED),
        _ => {
            child.deaths = if child.started.elapsed() >= CALM { 1 } else { child.deaths + 1 };
            if child.deaths > allowed {
                tracing::error!(process, %status, restarts = allowed, "died too often");
                return ChildState::Ended(exit::FAILED);
            }
            let pause = FIRST_PAUSE.saturating_mul(1 << (child.deaths - 1).min(16)).min(LONGEST_PAUSE);
            tracing::warn!(process, %status, pause_ms = pause.as_millis(), "died, starting it again");
            ChildState::Waits { until: Instant::now() + pause }
        }
    }
}
