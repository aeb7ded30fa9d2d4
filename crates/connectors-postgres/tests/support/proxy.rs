//! Between a job and its server: passes bytes on, until it is told to do otherwise.

#![allow(dead_code, clippy::allow_attributes, clippy::allow_attributes_without_reason)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What happens to a connection on which `COMMIT` is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It ends before the server hears of it.
    Before,
    /// It ends when the server has answered, and the answer is lost.
    After,
    /// The answer never comes, and the connection stays.
    Swallow,
}

/// The cuts that are to come: the n-th `COMMIT` meets the n-th of them.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: u16,
    cuts: Vec<Cut>,
    commits: AtomicU64,
}

impl Proxy {
    pub(crate) fn new(target: u16, cuts: &[Cut]) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { target, cuts: cuts.to_vec(), commits: AtomicU64::new(0) });
        let theirs = Arc::clone(&shared);
        std::thread::spawn(move || {
            for inner in listener.incoming() {
                connect(inner.unwrap(), &theirs);
            }
        });
        Proxy { port, shared }
    }

    /// How many `COMMIT`s there were.
    pub(crate) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::SeqCst)
    }
}

fn connect(inner: TcpStream, shared: &Arc<Shared>) {
    let Ok(outer) = TcpStream::connect(("127.0.0.1", shared.target)) else { return };
    for socket in [&inner, &outer] {
        socket.set_nodelay(true).unwrap();
    }
    let (cutting, swallowing) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (from, to) = (outer.try_clone().unwrap(), inner.try_clone().unwrap());
    let (cuts, swallows) = (Arc::clone(&cutting), Arc::clone(&swallowing));
    std::thread::spawn(move || {
        pump(from, to, |_| {
            let swallowed = swallows.load(Ordering::SeqCst);
            (!swallowed, !cuts.load(Ordering::SeqCst))
        });
    });
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        pump(inner, outer, |bytes| {
            // The whole of a query, with its length.
            if !bytes.windows(8).any(|window| window == b"\x0bCOMMIT\0") {
                return (true, true);
            }
            let number = shared.commits.fetch_add(1, Ordering::SeqCst);
            match shared.cuts.get(number as usize) {
                None => (true, true),
                Some(Cut::Before) => (false, false),
                Some(Cut::After) => {
                    swallowing.store(true, Ordering::SeqCst);
                    cutting.store(true, Ordering::SeqCst);
                    (true, true)
                }
                Some(Cut::Swallow) => {
                    swallowing.store(true, Ordering::SeqCst);
                    (true, true)
                }
            }
        });
    });
}

/// `judge` says of what came whether it is passed on, and whether the connection goes on.
fn pump(mut from: TcpStream, mut to: TcpStream, mut judge: impl FnMut(&[u8]) -> (bool, bool)) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let (passes, goes_on) = judge(&bytes[..count]);
        if passes && to.write_all(&bytes[..count]).is_err() || !goes_on {
            break;
        }
    }
    for socket in [from, to] {
        let _ = socket.shutdown(Shutdown::Both);
    }
}
