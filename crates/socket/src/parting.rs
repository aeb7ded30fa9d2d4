//! The last words on a connection that goes no further.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// How long whoever is turned away has to read why.
const PARTING_TIME: Duration = Duration::from_secs(1);
/// So much of what is still on its way is thrown away, at most.
const LONGEST_PARTING: usize = 1 << 20;

/// Says the last words, and waits a moment so that they arrive: a socket that is closed with something unread takes back what it
/// has sent. The other side may have gone already.
pub fn part(stream: &TcpStream, last_words: &[u8]) {
    let _ = try_part(stream, last_words);
}

fn try_part(mut stream: &TcpStream, last_words: &[u8]) -> io::Result<()> {
    let until = Instant::now() + PARTING_TIME;
    stream.set_write_timeout(Some(PARTING_TIME))?;
    stream.write_all(last_words)?;
    stream.shutdown(Shutdown::Write)?;
    let (mut buffer, mut heard) = ([0; 4_096], 0);
    while heard < LONGEST_PARTING {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => break,
            bytes => heard += bytes,
        }
    }
    Ok(())
}
