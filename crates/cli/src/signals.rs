//! SIGINT and SIGTERM: the first asks the job to stop with a last checkpoint, the second ends the
//! process at once.

use std::sync::Arc;
use std::thread::JoinHandle;

use millpond_jobmanager::StopSignal;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::error::CliError;
use crate::exit;
use crate::message;
use crate::terminal::Terminal;

/// Listens for signals until dropped.
pub(crate) struct Listener {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Turns signals into `stop`.
    ///
    /// # Errors
    /// When the handlers cannot be installed or the thread cannot be started.
    pub(crate) fn start(stop: Arc<StopSignal>, terminal: Arc<Terminal>) -> Result<Listener, CliError> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|source| CliError::Signals { source })?;
        let handle = signals.handle();
        let listen = move || {
            for signal in &mut signals {
                if stop.is_asked() {
                    terminal.clear_line();
                    signal_hook::low_level::exit(exit::signal_code(signal));
                }
                stop.stop();
                terminal.print(&format!("{}\n", message::stopping(name(signal))));
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(listen);
        let thread = thread.map_err(|source| CliError::Signals { source })?;
        Ok(Listener { handle, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const fn name(signal: i32) -> &'static str {
    match signal {
        SIGINT => "SIGINT",
        _ => "SIGTERM",
    }
}
