//! What process 0 knows of the others, shared by the threads on which they are heard.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_cluster::{Call, ClusterSettings, Fact, Heard, Hello, Reply, Wire, difference};

use super::says::{FromMember, MemberEvent, Stats, ToMember};
use super::values::{Answers, Values};
use crate::attempt::Message;
use crate::status::StopSignal;

/// What is known of the other processes.
pub(crate) struct State {
    settings: ClusterSettings,
    job: String,
    facts: Vec<Fact>,
    stop: Arc<StopSignal>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

struct Inner {
    /// By index; the first one is this process, and always absent.
    members: Vec<Option<Member>>,
    /// How many wires there have been.
    wires: u64,
    attempt: Option<CurrentAttempt>,
    last_refusal: Option<String>,
    ended: bool,
    /// Processes that are welcome, and are just being told so.
    joining: BTreeSet<u32>,
}

struct Member {
    incarnation: u64,
    from: String,
    /// Tells this wire from earlier ones of the same process.
    wire_number: u64,
    wire: Arc<Wire>,
}

struct CurrentAttempt {
    attempt: u64,
    messages: Sender<Message>,
    values: Arc<Values>,
    stats: Vec<Stats>,
    gone: BTreeSet<u32>,
    broken: bool,
}

impl State {
    pub(crate) fn new(settings: &ClusterSettings, job: &str, facts: Vec<Fact>, stop: Arc<StopSignal>) -> State {
        let members = settings.hosts.iter().map(|_| None).collect();
        let inner =
            Inner { members, wires: 0, attempt: None, last_refusal: None, ended: false, joining: BTreeSet::new() };
        State {
            settings: settings.clone(),
            job: job.to_owned(),
            facts,
            stop,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, or for `time`.
    pub(crate) fn wait(&self, time: Duration) {
        drop(self.changed.wait_timeout(self.lock(), time).unwrap_or_else(PoisonError::into_inner));
    }

    /// Answers a process that wants to take part.
    pub(crate) fn answer(self: &Arc<Self>, call: Call) {
        let (hello, from) = (call.hello.clone(), call.from);
        let mut inner = self.lock();
        let replaced = inner.members.get_mut(hello.process as usize).and_then(|member| {
            // The same process calls again: it has lost the connection, and we have not noticed yet.
            member.take_if(|known| known.incarnation == hello.incarnation)
        });
        if let Some(old) = &replaced {
            lose(&mut inner, hello.process, &old.from, "it has called again");
        }
        let reply = self.judge(&inner, &hello);
        match &reply {
            Reply::Welcome => tracing::info!(process = hello.process, %from, "a process joins"),
            Reply::Taken { reason } => tracing::debug!(process = hello.process, %from, reason, "a process waits"),
            Reply::Refused { reason } => {
                tracing::warn!(process = hello.process, %from, reason, "a process is refused");
                inner.last_refusal = Some(reason.clone());
            }
        }
        if reply == Reply::Welcome {
            inner.joining.insert(hello.process);
        }
        // Whoever does not read its answer must not hold up the others.
        drop(inner);
        drop(replaced);
        self.changed.notify_all();
        let answered = call.answer(&reply);
        let mut inner = self.lock();
        if reply == Reply::Welcome {
            inner.joining.remove(&hello.process);
        }
        let joined = match answered {
            // It will call again, and hear that the job is ending.
            Ok(Some(_)) if inner.ended => Ok(None),
            Ok(Some(stream)) => {
                inner.wires += 1;
                let (state, process, wire_number) = (Arc::clone(self), hello.process, inner.wires);
                let hear = move |heard| state.hear(process, wire_number, heard);
                Wire::start(stream, &self.settings, hear).map(|wire| Some((wire_number, wire)))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match joined {
            Ok(Some((wire_number, wire))) => {
                let (incarnation, from, wire) = (hello.incarnation, from.to_string(), Arc::new(wire));
                inner.members[hello.process as usize] = Some(Member { incarnation, from, wire_number, wire });
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(process = hello.process, %error, "a process went while it joined"),
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// Takes note of somebody who was turned away, and may be one of the processes that are waited for.
    pub(crate) fn turned_away(&self, from: SocketAddr, reason: &str) {
        self.lock().last_refusal = Some(format!("the caller at {from}: {reason}"));
    }

    fn judge(&self, inner: &Inner, hello: &Hello) -> Reply {
        let processes = self.settings.processes();
        if hello.job != self.job {
            return Reply::Refused { reason: format!("this is job {:?}, not {:?}", self.job, beginning(&hello.job)) };
        }
        // First what the index means, then who has it.
        if let Some(reason) = difference(&self.facts, &hello.facts, hello.process) {
            return Reply::Refused { reason };
        }
        if hello.process == 0 || hello.process >= processes {
            let reason = format!("there is no process {} to join {processes} processes", hello.process);
            return Reply::Refused { reason };
        }
        match inner.members.get(hello.process as usize) {
            Some(Some(known)) => Reply::Taken { reason: format!("it is connected from {}", known.from) },
            _ if inner.joining.contains(&hello.process) => Reply::Taken { reason: "another one is joining".to_owned() },
            _ if inner.ended => Reply::Taken { reason: "the job is ending".to_owned() },
            _ => Reply::Welcome,
        }
    }

    fn hear(&self, process: u32, wire_number: u64, heard: Heard<FromMember>) {
        let mut inner = self.lock();
        let member = inner.members.get_mut(process as usize);
        let Some(member) = member.filter(|member| is_wire(member.as_ref(), wire_number)) else { return };
        match heard {
            Heard::Message(said) => {
                let wire = member.as_ref().map(|member| Arc::clone(&member.wire));
                let reply = take(&mut inner, process, said, &self.stop);
                drop(inner);
                if let (Some(wire), Some(reply)) = (wire, reply) {
                    wire.send(&reply);
                }
            }
            Heard::Lost(reason) => {
                let lost = member.take();
                if let Some(lost) = &lost {
                    lose(&mut inner, process, &lost.from, &reason);
                }
                drop(inner);
                drop(lost);
            }
        }
        self.changed.notify_all();
    }

    /// Indexes of processes that are not there.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let inner = self.lock();
        let absent = inner.members.iter().enumerate().skip(1).filter(|(_, member)| member.is_none());
        absent.map(|(process, _)| process as u32).collect()
    }

    pub(crate) fn last_refusal(&self) -> Option<String> {
        self.lock().last_refusal.clone()
    }

    /// An attempt begins.
    pub(crate) fn begin(&self, attempt: u64, messages: Sender<Message>) {
        let missing = self.missing();
        let mut inner = self.lock();
        inner.last_refusal = None;
        inner.attempt = Some(CurrentAttempt {
            attempt,
            messages,
            values: Arc::default(),
            stats: vec![Stats::default(); inner.members.len()],
            gone: BTreeSet::new(),
            broken: false,
        });
        for process in missing {
            lose(&mut inner, process, "nowhere", "it went before the attempt began");
        }
    }

    /// The attempt is over: what is still said of it is not heard.
    pub(crate) fn over(&self) {
        let attempt = self.lock().attempt.take();
        if let Some(attempt) = attempt {
            attempt.values.cancel();
        }
    }

    pub(crate) fn values(&self) -> Arc<Values> {
        self.lock().attempt.as_ref().map(|attempt| Arc::clone(&attempt.values)).unwrap_or_default()
    }

    /// Whether somebody was lost or has failed since the attempt began, or the job is to stop.
    pub(crate) fn is_broken(&self) -> bool {
        self.stop.is_asked() || self.lock().attempt.as_ref().is_none_or(|attempt| attempt.broken)
    }

    /// Whether nothing more will be heard of the attempt.
    pub(crate) fn all_gone(&self) -> bool {
        let inner = self.lock();
        let Some(attempt) = &inner.attempt else { return true };
        (1..inner.members.len()).all(|process| attempt.gone.contains(&(process as u32)))
    }

    pub(crate) fn stats(&self) -> Stats {
        let inner = self.lock();
        let stats = inner.attempt.as_ref().map(|attempt| attempt.stats.as_slice()).unwrap_or_default();
        stats.iter().fold(Stats::default(), |sum, one| Stats {
            source_records: sum.source_records + one.source_records,
            state_entries: sum.state_entries + one.state_entries,
            state_bytes: sum.state_bytes + one.state_bytes,
        })
    }

    pub(crate) fn broadcast(&self, message: &ToMember) {
        for wire in self.wires() {
            wire.send(message);
        }
    }

    /// Tells some what became of a value.
    pub(crate) fn tell(&self, attempt: u64, name: &str, answers: Answers) {
        let inner = self.lock();
        send(&inner, attempt, name, answers);
    }

    /// The last word to everybody. Returns when it is said.
    pub(crate) fn end(&self, message: &ToMember) {
        self.broadcast(message);
        let members: Vec<_> = {
            let mut inner = self.lock();
            inner.ended = true;
            inner.members.iter_mut().filter_map(Option::take).collect()
        };
        // Each says what is left to say, and closes.
        drop(members);
    }

    fn wires(&self) -> Vec<Arc<Wire>> {
        self.lock().members.iter().flatten().map(|member| Arc::clone(&member.wire)).collect()
    }
}

fn is_wire(member: Option<&Member>, wire_number: u64) -> bool {
    member.is_some_and(|member| member.wire_number == wire_number)
}

fn lose(inner: &mut Inner, process: u32, from: &str, reason: &str) {
    tracing::warn!(process, from, reason, "a process is lost");
    if let Some(attempt) = &mut inner.attempt {
        if !attempt.gone.insert(process) {
            // It had done its part: the attempt needs nothing more of it.
            return;
        }
        attempt.broken = true;
        attempt.values.cancel();
        let _ = attempt.messages.send(Message::Lost { process, reason: reason.to_owned() });
    }
}

/// Takes note of what a process says; returns what it is answered.
fn take(inner: &mut Inner, process: u32, said: FromMember, stop: &StopSignal) -> Option<ToMember> {
    let number = match &said {
        FromMember::Stop => {
            tracing::info!(process, "a process asks for the end of the job");
            stop.stop();
            return None;
        }
        FromMember::Event { attempt, .. }
        | FromMember::Stats { attempt, .. }
        | FromMember::Gone { attempt, .. }
        | FromMember::Ask { attempt, .. }
        | FromMember::Computed { attempt, .. } => *attempt,
    };
    let current = inner.attempt.as_mut().filter(|current| current.attempt == number)?;
    match said {
        FromMember::Event { event, .. } => {
            current.broken |= matches!(event, MemberEvent::Failed { .. });
            // The attempt may just have ended.
            let _ = current.messages.send(Message::Member { process, event });
        }
        FromMember::Stats { stats, .. } => current.stats[process as usize] = stats,
        FromMember::Gone { stats, .. } => {
            current.stats[process as usize] = stats;
            current.gone.insert(process);
        }
        FromMember::Ask { name, .. } => {
            let answer = current.values.ask(&name, process)?;
            return Some(ToMember::Value { attempt: number, name, answer });
        }
        FromMember::Computed { name, value, .. } => {
            let answers = current.values.computed(&name, value);
            send(inner, number, &name, answers);
        }
        FromMember::Stop => {}
    }
    None
}

fn send(inner: &Inner, attempt: u64, name: &str, answers: Answers) {
    for (process, answer) in answers {
        let message = ToMember::Value { attempt, name: name.to_owned(), answer };
        if let Some(Some(member)) = inner.members.get(process as usize) {
            member.wire.send(&message);
        }
    }
}

/// So many characters of a stranger's name are told.
const MOST_SHOWN: usize = 100;

/// The beginning of what a stranger calls itself.
fn beginning(name: &str) -> String {
    name.chars().take(MOST_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_process_that_is_lost_after_it_is_done_fails_nothing() {
        let settings = ClusterSettings { hosts: vec!["a:1".to_owned(), "b:1".to_owned()], ..Default::default() };
        let state = State::new(&settings, "job", Vec::new(), Arc::default());
        let (messages, heard) = channel();
        let attempt = |messages| CurrentAttempt {
            attempt: 7,
            messages,
            values: Arc::default(),
            stats: vec![Stats::default(); 2],
            gone: BTreeSet::new(),
            broken: false,
        };
        let mut inner = state.lock();
        inner.attempt = Some(attempt(messages.clone()));
        let done = FromMember::Gone { attempt: 7, stats: Stats::default() };
        assert!(take(&mut inner, 1, done, &state.stop).is_none());
        lose(&mut inner, 1, "b:1", "it closed the connection");
        assert!(heard.try_recv().is_err(), "it had done its part");
        assert!(!inner.attempt.as_ref().unwrap().broken);
        inner.attempt = Some(attempt(messages));
        lose(&mut inner, 1, "b:1", "it closed the connection");
        assert!(matches!(heard.try_recv(), Ok(Message::Lost { process: 1, .. })), "it was still wanted");
        drop(inner);
        assert!(state.is_broken() && state.all_gone());
    }
}
