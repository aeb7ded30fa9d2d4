//! Which of several failures is the reason of the others.
//!
//! When something fails in one process, all its connections are closed, and what the others then see is that it went. Its own
//! words say more, and come over another connection.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use millpond_engine::EngineError;

use crate::attempt::Message;
use crate::crew::says::MemberEvent;
use crate::error::JobError;
use crate::settings::JobSettings;

/// How long the words of a process whose connections were closed are waited for.
const WORDS_TIME: Duration = Duration::from_millis(500);

/// Where the others have said why the processes did not come together, that is the reason.
pub(crate) fn why_apart(error: JobError, messages: &Receiver<Message>, settings: &JobSettings) -> JobError {
    let said = messages.try_iter().find_map(|message| match message {
        Message::Member { process, event: MemberEvent::Failed { kind, reason } } => {
            Some(JobError::Member { process, kind, reason })
        }
        Message::Lost { process, reason } => {
            let address = settings.cluster.as_ref().map_or("", |cluster| cluster.host(process)).to_owned();
            Some(JobError::Lost { process, address, reason })
        }
        _ => None,
    });
    said.unwrap_or(error)
}

/// Where a process has closed its connections because something failed there (such as its link to a third one), that is the reason.
/// One that is really lost says nothing more.
pub(crate) fn why_gone(error: JobError, messages: &Receiver<Message>) -> JobError {
    let JobError::Engine(EngineError::Peer { process: gone, .. }) = &error else { return error };
    let until = Instant::now() + WORDS_TIME;
    loop {
        match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Message::Member { process, event: MemberEvent::Failed { kind, reason } }) if process == *gone => {
                return JobError::Member { process, kind, reason };
            }
            Ok(Message::Lost { process, .. }) if process == *gone => return error,
            Ok(_) => {}
            Err(_) => return error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use millpond_core::ErrorKind;

    use super::*;

    fn reason(messages: Vec<Message>) -> String {
        let (sender, heard) = channel();
        messages.into_iter().for_each(|message| sender.send(message).unwrap());
        drop(sender);
        let seen = EngineError::Peer { process: 1, reason: "it closed the connection".to_owned() };
        why_gone(seen.into(), &heard).to_string()
    }

    fn failed(process: u32, reason: &str) -> Message {
        let event = MemberEvent::Failed { kind: ErrorKind::Unavailable, reason: reason.to_owned() };
        Message::Member { process, event }
    }

    #[test]
    fn a_process_that_gave_up_because_of_a_third_one_says_so() {
        let seen = "process 1 is lost: it closed the connection";
        let said = "process 2 is lost: no sign of life";
        assert_eq!(reason(vec![failed(2, "process 1 is lost"), failed(1, said)]), format!("process 1: {said}"));
        assert_eq!(reason(Vec::new()), seen);
        let lost = Message::Lost { process: 1, reason: "it closed the connection".to_owned() };
        assert_eq!(reason(vec![lost, failed(1, said)]), seen, "what is said after its loss is of another life");
    }
}
