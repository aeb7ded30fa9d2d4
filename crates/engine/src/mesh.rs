//! The connections of an attempt that runs in several processes.
//!
//! Two sockets for each pair of processes: *data* is timely's own stream of messages, *credits* carries what receivers give
//! back to senders, and signs of life. Owns both while the attempt runs, and their end. Does *not* own how they come about
//! (see the room `cluster`), nor what follows from a lost process: it ends the attempt here, with an error that names it.
//!
//! Invariants: no thread of timely panics because of a socket; after [`Links::close`] all threads of the attempt end, whatever
//! the other processes do; of a broken stream nothing half-read reaches a worker.

mod credits;
mod framing;
mod link;
mod start;

use std::net::Shutdown;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use millpond_socket::Socket;

pub(crate) use credits::FarCredit;
pub(crate) use start::Connections;

/// The connections of one process to all others, for one attempt.
#[derive(Debug)]
pub struct Mesh {
    /// Index of this process.
    pub process: u32,
    /// The sockets to each process by its index; `None` for this process.
    pub peers: Vec<Option<PeerSockets>>,
    /// How a process is noticed that hangs or is cut off.
    pub heartbeat: Heartbeat,
}

/// The sockets to one other process.
#[derive(Debug)]
pub struct PeerSockets {
    /// For timely's messages.
    pub data: Socket,
    /// For credit and signs of life.
    pub credits: Socket,
}

/// How a process is noticed that hangs or is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who has nothing to say for so long says that.
    pub interval: Duration,
    /// Who has said nothing for so long is lost.
    pub timeout: Duration,
}

impl Mesh {
    /// Number of processes.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.peers.len() as u32
    }
}

/// Which subtasks are where: every process has the same number of workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geography {
    pub(crate) process: u32,
    pub(crate) processes: u32,
    /// Workers of each process.
    pub(crate) workers: u32,
}

impl Geography {
    pub(crate) fn alone(workers: u32) -> Self {
        Geography { process: 0, processes: 1, workers }
    }

    /// Workers of all processes.
    pub(crate) fn total_workers(self) -> u32 {
        self.processes.saturating_mul(self.workers)
    }

    /// The process of subtask `index`, which runs on the worker with this number.
    pub(crate) fn process_of(self, index: u32) -> u32 {
        index / self.workers.max(1)
    }

    pub(crate) fn is_here(self, index: u32) -> bool {
        self.process_of(index) == self.process
    }

    /// How many of `parallelism` subtasks are in this process.
    pub(crate) fn here_of(self, parallelism: u32) -> u32 {
        parallelism.saturating_sub(self.process * self.workers).min(self.workers)
    }
}

/// What ends the connections of an attempt from outside of their threads.
#[derive(Default)]
pub(crate) struct Links {
    sockets: Mutex<Vec<Socket>>,
    workers_ended: Mutex<bool>,
    changed: Condvar,
}

impl Links {
    /// Remembers a socket, to close it with the others.
    pub(crate) fn add(&self, socket: Socket) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    }

    /// Ends all reading and writing. For an attempt that has failed.
    pub(crate) fn close(&self) {
        for socket in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // One that is closed already is as it should be.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// No worker of this process reads from the connections any more.
    pub(crate) fn workers_ended(&self) {
        *self.workers_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn wait_for_workers(&self) {
        let mut ended = self.workers_ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            ended = self.changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtasks_are_spread_over_processes_in_order() {
        let at = |process| Geography { process, processes: 3, workers: 2 };
        assert_eq!((0..6).map(|index| at(0).process_of(index)).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
        assert_eq!([0, 1, 2].map(|process| at(process).here_of(3)), [2, 1, 0]);
        assert_eq!([0, 1, 2].map(|process| at(process).here_of(6)), [2, 2, 2]);
        assert_eq!((Geography::alone(4).here_of(3), at(0).total_workers()), (3, 6));
    }
}
