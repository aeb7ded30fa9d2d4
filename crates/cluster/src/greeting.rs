//! What a process says when it calls another, and what it is answered.

use serde::{Deserialize, Serialize};

/// Stands at the beginning of every greeting; its last number is the version of all that follows.
pub(crate) const MAGIC: &[u8; 16] = b"millpond-proc 01";

/// A name and a value that must be the same in all processes.
pub type Fact = (String, String);

/// The first words of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Greeting {
    /// Wants to take part in the job.
    Join(Hello),
    /// One link of an attempt's mesh.
    Link(LinkHello),
}

/// Who wants to take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Name of the job.
    pub job: String,
    /// Index of the caller.
    pub process: u32,
    /// Tells this run of the process from others with the same index. Random.
    pub incarnation: u64,
    /// What must be the same in all processes.
    pub facts: Vec<Fact>,
}

/// Which link of which mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkHello {
    pub(crate) job: String,
    pub(crate) attempt: u64,
    /// Tells attempts apart that have one number by mistake. Random.
    pub(crate) token: u64,
    /// Index of the caller.
    pub(crate) from: u32,
    /// Index of who is called.
    pub(crate) to: u32,
    pub(crate) kind: LinkKind,
}

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LinkKind {
    Data,
    Credits,
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Takes part from now on.
    Welcome,
    /// Another process with this index takes part; it may be about to be noticed as lost.
    Taken {
        /// Where that one is.
        reason: String,
    },
    /// Does not fit; trying again does not help.
    Refused {
        /// The difference.
        reason: String,
    },
}

/// The first difference between the facts of the leading process and those of another, in words.
#[must_use]
pub fn difference(leader: &[Fact], other: &[Fact], process: u32) -> Option<String> {
    let value = |facts: &[Fact], name: &str| {
        let fact = facts.iter().find(|(known, _)| known == name);
        fact.map(|(_, value)| value.clone())
    };
    let names = leader.iter().chain(other).map(|(name, _)| name.as_str());
    let shown = |value: Option<String>| value.map_or("not set".to_owned(), |value| format!("{value:?}"));
    names.into_iter().find_map(|name| {
        let (ours, theirs) = (value(leader, name), value(other, name));
        if ours == theirs {
            return None;
        }
        let (ours, theirs) = differing_lines(ours, theirs);
        Some(format!("{name} is {} in process 0 and {} in process {process}", shown(ours), shown(theirs)))
    })
}

/// Of two long values, the first lines that differ.
fn differing_lines(ours: Option<String>, theirs: Option<String>) -> (Option<String>, Option<String>) {
    let (Some(our_text), Some(their_text)) = (&ours, &theirs) else { return (ours, theirs) };
    let (mut our_lines, mut their_lines) = (our_text.lines(), their_text.lines());
    loop {
        match (our_lines.next(), their_lines.next()) {
            (Some(our_line), Some(their_line)) if our_line == their_line => {}
            (None, None) => return (ours, theirs),
            (our_line, their_line) => {
                let line = |line: Option<&str>| Some(line.unwrap_or("nothing more").trim().to_owned());
                return (line(our_line), line(their_line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Vec<Fact> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let ours = facts(&[("workers", "2"), ("plan", "a\n  b\nc"), ("binary", "1")]);
        assert_eq!(difference(&ours, &ours, 1), None);
        let theirs = facts(&[("workers", "3"), ("plan", "a"), ("binary", "2")]);
        assert_eq!(difference(&ours, &theirs, 4).unwrap(), "workers is \"2\" in process 0 and \"3\" in process 4");
        let theirs = facts(&[("workers", "2"), ("plan", "a\n  d\nc"), ("binary", "1")]);
        assert_eq!(difference(&ours, &theirs, 1).unwrap(), "plan is \"b\" in process 0 and \"d\" in process 1");
        let theirs = facts(&[("workers", "2"), ("plan", "a\n  b"), ("binary", "1")]);
        assert_eq!(
            difference(&ours, &theirs, 1).unwrap(),
            "plan is \"c\" in process 0 and \"nothing more\" in process 1"
        );
        let more = facts(&[("workers", "2"), ("plan", "a\n  b\nc"), ("binary", "1"), ("x", "y")]);
        assert_eq!(difference(&ours, &more, 1).unwrap(), "x is not set in process 0 and \"y\" in process 1");
    }
}
