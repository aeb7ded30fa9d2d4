//! Accounts of a bank that is larger than memory: postings to many accounts, each of which holds papers of its
//! own; what the branches know of their accounts; and marked postings.
//!
//! ```text
//! postings ─► by account ──► accounts  (ValueState of a kilobyte, ListState; both with a time to live) ─► statements, balances
//!     └─────► by branch ───► branches  (MapState, one entry per account)     ─► branches
//! ```
//!
//! `accounts run --backend rocksdb --memory 128MiB [options] -- [--accounts N] [--postings N] [--papers BYTES]
//! [--ttl-ms MILLISECONDS] [--pace RECORDS_PER_SECOND] [--out DIR]`
//!
//! `scripts/torture large-state` kills it. The output follows from the input alone, whatever the order in which
//! postings meet an account: `scripts/oracles/accounts.py` computes it without state.

mod recent;
mod records;

use std::path::PathBuf;
use std::process::ExitCode;

use millpond::prelude::*;

use crate::recent::Recent;
use crate::records::{Account, Balance, Branch, Posting, Statement};

/// Accounts of one branch.
const ACCOUNTS_PER_BRANCH: u64 = 1_000;
/// Every so many entries of an account there is a statement.
const ENTRIES_PER_STATEMENT: u64 = 16;
/// Statements leave by the main output, balances by this one.
const BALANCES: SideTag<Balance> = SideTag::new("balances");

/// Keeps resident memory near what is in use, RocksDB's included.
#[cfg(feature = "rocksdb")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    millpond::main_named("accounts", job)
}

fn job(flow: &mut Dataflow) -> UserResult {
    let options = Options::parse(&millpond::args())?;
    let (accounts, papers, ttl_ms) = (options.accounts, options.papers, options.ttl_ms);
    let mut source = GeneratorSource::new(options.postings, 8, move |index| Posting::new(index, accounts));
    if options.pace > 0 {
        source = source.rate(options.pace);
    }
    let postings = flow.source("postings", source);
    let out = |name: &str| options.out.join(name);
    let accounts = Accounts { papers, ttl_ms, states: None };
    let statements = postings.key_by(|posting| posting.account).process("accounts", accounts);
    statements.side_output(BALANCES).sink("write balances", FileSink::json(out("balances")));
    statements.sink("write statements", FileSink::json(out("statements")));
    postings
        .key_by(|posting| posting.account / ACCOUNTS_PER_BRANCH)
        .process("branches", Branches::default())
        .sink("write branches", FileSink::json(out("branches")));
    Ok(())
}

/// Posts to accounts; shows all balances at the end.
struct Accounts {
    papers: usize,
    ttl_ms: u32,
    states: Option<(ValueState<Account>, ListState<u64>, Recent)>,
}

impl KeyedProcess for Accounts {
    type Key = u64;
    type Input = Posting;
    type Output = Statement;

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        self.states = Some((states.value("account")?, states.list("marked")?, Recent::declare(states, self.ttl_ms)?));
        Ok(())
    }

    fn process(
        &mut self,
        posting: Posting,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Statement>,
    ) -> UserResult {
        let Some((account, marked, recent)) = self.states else { return Ok(()) };
        let mut known = match account.get(context)? {
            Some(known) => known.clone(),
            None => Account::open(posting.account, self.papers),
        };
        known.check(posting.account, self.papers)?;
        recent.check(posting.account, &known, context)?;
        known.post(&posting);
        recent.note(posting.number, &mut known, context)?;
        let entries = known.entries;
        account.set(context, known)?;
        if posting.is_marked() {
            marked.add(context, posting.number)?;
        }
        if entries.is_multiple_of(ENTRIES_PER_STATEMENT) {
            output.emit(Statement { account: posting.account, entries });
        }
        Ok(())
    }

    fn on_end(&mut self, context: &mut KeyedContext<'_, u64>, output: &mut Output<Statement>) -> UserResult {
        let (Some((account, marked, _)), papers) = (self.states, self.papers) else { return Ok(()) };
        context.for_each_key("account", |states| {
            let number = states.current_key().copied().unwrap_or_default();
            let Some(known) = account.get(states)?.cloned() else { return Ok(()) };
            known.check(number, papers)?;
            let marks = marked.get(states)?;
            output.emit_side(BALANCES, Balance::new(number, &known, marks));
            Ok(())
        })
    }
}

/// Counts the entries of each account of a branch.
#[derive(Default)]
struct Branches {
    accounts: Option<MapState<u64, u64>>,
}

impl KeyedProcess for Branches {
    type Key = u64;
    type Input = Posting;
    type Output = Branch;

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        self.accounts = Some(states.map("accounts")?);
        Ok(())
    }

    fn process(&mut self, posting: Posting, context: &mut KeyedContext<'_, u64>, _: &mut Output<Branch>) -> UserResult {
        let Some(accounts) = self.accounts else { return Ok(()) };
        let entries = accounts.get(context, &posting.account)?.copied().unwrap_or(0);
        accounts.put(context, posting.account, entries + 1)?;
        Ok(())
    }

    fn on_end(&mut self, context: &mut KeyedContext<'_, u64>, output: &mut Output<Branch>) -> UserResult {
        let Some(accounts) = self.accounts else { return Ok(()) };
        context.for_each_key("accounts", |states| {
            let mut branch =
                Branch { branch: states.current_key().copied().unwrap_or_default(), accounts: 0, entries: 0 };
            for (_, entries) in accounts.iter(states)? {
                branch.accounts += 1;
                branch.entries += entries;
            }
            output.emit(branch);
            Ok(())
        })
    }
}

/// What stands after `--`.
struct Options {
    accounts: u64,
    postings: u64,
    papers: usize,
    ttl_ms: u32,
    pace: u64,
    out: PathBuf,
}

impl Options {
    fn parse(arguments: &[String]) -> UserResult<Options> {
        let mut options = Options {
            accounts: 10_000,
            postings: 100_000,
            papers: 900,
            ttl_ms: 5_000,
            pace: 0,
            out: "out/accounts".into(),
        };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            let wrong = |_| format!("{name} {value} is not a number");
            match name.as_str() {
                "--accounts" => options.accounts = value.parse().map_err(wrong)?,
                "--postings" => options.postings = value.parse().map_err(wrong)?,
                "--papers" => options.papers = value.parse().map_err(wrong)?,
                "--ttl-ms" => options.ttl_ms = value.parse().map_err(wrong)?,
                "--pace" => options.pace = value.parse().map_err(wrong)?,
                "--out" => options.out = value.into(),
                other => return Err(format!("unknown argument {other}").into()),
            }
        }
        if options.accounts == 0 {
            return Err("--accounts must be above 0".into());
        }
        Ok(options)
    }
}
