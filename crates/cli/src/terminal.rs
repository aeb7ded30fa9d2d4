//! Standard error, shared by the log and the progress line.
//!
//! Invariant: a log line never runs into the progress line; the progress line is erased first, and
//! comes back with its next update. Trouble with standard error has nowhere to be reported, and is
//! ignored.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Back to the beginning of the line, and erase to its end.
const ERASE_LINE: &str = "\r\x1b[K";
/// What does not fit is cut off, not wrapped.
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";

/// Standard error.
pub(crate) struct Terminal {
    screen: Mutex<Screen>,
}

struct Screen {
    out: Box<dyn Write + Send>,
    interactive: bool,
    line_shown: bool,
}

impl Terminal {
    /// Standard error of this process.
    #[must_use]
    pub(crate) fn stderr() -> Arc<Terminal> {
        let stderr = io::stderr();
        let interactive = stderr.is_terminal();
        Terminal::new(Box::new(stderr), interactive)
    }

    fn new(out: Box<dyn Write + Send>, interactive: bool) -> Arc<Terminal> {
        Arc::new(Terminal { screen: Mutex::new(Screen { out, interactive, line_shown: false }) })
    }

    /// Whether somebody watches.
    #[must_use]
    pub(crate) fn is_interactive(&self) -> bool {
        self.screen().interactive
    }

    /// Writes whole lines.
    pub(crate) fn print(&self, text: &str) {
        let mut screen = self.screen();
        screen.erase();
        let _ = screen.out.write_all(text.as_bytes()).and_then(|()| screen.out.flush());
    }

    /// Replaces the progress line. The cursor stays at its beginning, so that lines on standard
    /// output begin in the first column.
    pub(crate) fn show_line(&self, line: &str) {
        let mut screen = self.screen();
        let text = format!("{ERASE_LINE}{WRAP_OFF}{line}{WRAP_ON}\r");
        let _ = screen.out.write_all(text.as_bytes()).and_then(|()| screen.out.flush());
        screen.line_shown = true;
    }

    /// Removes the progress line.
    pub(crate) fn clear_line(&self) {
        let mut screen = self.screen();
        screen.erase();
        let _ = screen.out.flush();
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Screen {
    fn erase(&mut self) {
        if std::mem::take(&mut self.line_shown) {
            let _ = self.out.write_all(ERASE_LINE.as_bytes());
        }
    }
}

/// Writes log lines to a terminal.
pub(crate) struct LogWriter(pub(crate) Arc<Terminal>);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut screen = self.0.screen();
        screen.erase();
        screen.out.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.screen().out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_line_erases_the_progress_line_first_and_once() {
        let captured = Captured::default();
        let terminal = Terminal::new(Box::new(captured.clone()), true);
        terminal.show_line("12 records/s");
        LogWriter(Arc::clone(&terminal)).write_all(b"INFO a\n").unwrap();
        terminal.print("b\n");
        let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "\r\x1b[K\x1b[?7l12 records/s\x1b[?7h\r\r\x1b[KINFO a\nb\n");
    }
}
