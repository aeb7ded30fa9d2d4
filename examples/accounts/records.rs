//! What postings, accounts and branches are.

use millpond::prelude::*;

/// The n-th output of the splitmix64 generator that starts at 0: the same in every language.
fn drawn(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A posting. The first ones open all accounts in turn, the others go to accounts that are drawn.
#[derive(Clone, Debug, PartialEq, State)]
pub(crate) struct Posting {
    pub(crate) number: u64,
    pub(crate) account: u64,
}

impl Posting {
    pub(crate) fn new(number: u64, accounts: u64) -> Posting {
        let account = if number < accounts { number } else { drawn(number) % accounts };
        Posting { number, account }
    }

    /// Some postings are remembered one by one.
    pub(crate) fn is_marked(&self) -> bool {
        self.number.is_multiple_of(64)
    }
}

/// An account.
#[derive(Clone, Debug, PartialEq, State)]
pub(crate) struct Account {
    pub(crate) entries: u64,
    /// Sum of what was drawn for each posting, modulo 2^64.
    pub(crate) sum: u64,
    /// The highest number of a posting.
    pub(crate) newest: u64,
    /// The number of the posting that came last.
    pub(crate) last: u64,
    /// Before and after that was noted where it expires, in milliseconds since 1970-01-01 UTC.
    pub(crate) noted_ms: (i64, i64),
    /// Follows from the account's number and its entries, so that a wrong value shows when it is read.
    pub(crate) papers: Vec<u8>,
}

impl Account {
    pub(crate) fn open(number: u64, papers: usize) -> Account {
        Account { entries: 0, sum: 0, newest: 0, last: 0, noted_ms: (0, 0), papers: papers_of(number, 0, papers) }
    }

    pub(crate) fn post(&mut self, posting: &Posting) {
        self.entries += 1;
        self.sum = self.sum.wrapping_add(drawn(posting.number));
        self.newest = self.newest.max(posting.number);
        self.papers = papers_of(posting.account, self.entries, self.papers.len());
    }

    /// Fails when the papers are not those of this account after so many entries.
    pub(crate) fn check(&self, number: u64, papers: usize) -> UserResult {
        if self.papers == papers_of(number, self.entries, papers) {
            return Ok(());
        }
        Err(format!("account {number} with {} entries holds papers that are not its own", self.entries).into())
    }
}

/// Half of it can be compressed.
fn papers_of(number: u64, entries: u64, bytes: usize) -> Vec<u8> {
    let mut papers = Vec::with_capacity(bytes + 16);
    let mut seed = drawn(number ^ entries.rotate_left(40));
    while papers.len() < bytes {
        seed = drawn(seed);
        papers.extend_from_slice(&seed.to_le_bytes());
        papers.extend_from_slice(&number.to_le_bytes());
    }
    papers.truncate(bytes);
    papers
}

/// Says that an account has come to so many entries.
#[derive(Clone, Debug, PartialEq, State)]
pub(crate) struct Statement {
    pub(crate) account: u64,
    pub(crate) entries: u64,
}

/// An account at the end.
#[derive(Clone, Debug, PartialEq, State)]
pub(crate) struct Balance {
    pub(crate) account: u64,
    pub(crate) entries: u64,
    pub(crate) sum: u64,
    pub(crate) newest: u64,
    pub(crate) marks: u64,
    /// Sum of the numbers of the marked postings.
    pub(crate) marked: u64,
}

impl Balance {
    pub(crate) fn new(number: u64, account: &Account, marks: &[u64]) -> Balance {
        Balance {
            account: number,
            entries: account.entries,
            sum: account.sum,
            newest: account.newest,
            marks: marks.len() as u64,
            marked: marks.iter().sum(),
        }
    }
}

/// A branch at the end.
#[derive(Clone, Debug, PartialEq, State)]
pub(crate) struct Branch {
    pub(crate) branch: u64,
    pub(crate) accounts: u64,
    pub(crate) entries: u64,
}
