//! A world in which a job runs while everything fails, and the rules that hold all the same.
//!
//! Owns the choice of the next step, the faults, and virtual time. Does *not* own the rules
//! ([`checks`]) or how an attempt works ([`attempt`]).
//!
//! A seed passes through in two phases: *faults*, in which subtasks fail, attempts are killed, replaced
//! while they still run, stopped and rescaled, and storage fails, lies and dawdles; then *calm*, in which
//! nothing fails any more and the job must reach its end within a bounded number of steps.

mod attempt;
mod checks;
mod copies;
mod mailbox;
mod sweep;
mod trace;
mod weather;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use millpond_checkpoint::{CompactionPolicy, Reason, Settings, WriterId};
use millpond_core::{ManualClock, MaxParallelism, SplitMix64};
use millpond_runtime::{FlowLimits, RunSettings};
use millpond_state::{ColdBacking, MemoryBudget, MemoryColdStores};
use millpond_storage::{FaultPlan, Faults, MemoryStorage, Retry, RetryPolicy, Storage};

use crate::jobs::{JobKind, SimJob};
use crate::outside::{Fault, Outside};
use attempt::{Attempt, Ended, Start};
use checks::Checker;
pub use sweep::{SweepReport, sweep_seed};
use trace::Trace;
pub use weather::Weather;

/// Name of the job in checkpoint storage.
pub(crate) const JOB: &str = "job";
/// Steps of the calm phase within which the job must end.
const CALM_STEPS: u64 = 400_000;
/// Attempts that the calm phase may need: what was broken before may end one or two.
const CALM_ATTEMPTS: u64 = 6;

/// What a seed went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps made.
    pub steps: u64,
    /// Attempts started.
    pub attempts: u64,
    /// Manifests of completed epochs.
    pub completed: u64,
    /// Times that the job was stopped and resumed.
    pub stops: u64,
    /// Checkpoints restored to another parallelism and compared with the oracle.
    pub restores_checked: u64,
    /// Compactions carried out.
    pub compactions: u64,
    /// Objects deleted.
    pub deleted: u64,
    /// Savepoints copied while the job ran.
    pub savepoints: u64,
    /// Storage calls that failed on purpose.
    pub storage_faults: u64,
    /// Commits that were repeated, without effect.
    pub repeated_commits: u64,
    /// Attempts that learned that they were fenced.
    pub fenced: u64,
    /// Lines committed.
    pub lines: u64,
    /// Hash of everything that happened.
    pub trace: u64,
}

/// A rule was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The job.
    pub job: JobKind,
    /// The seed that shows it.
    pub seed: u64,
    /// What is wrong.
    pub reason: String,
    /// The last things that happened.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        write!(f, "{:?} seed {}: {}", self.job, self.seed, self.reason)
    }
}

impl std::error::Error for Failure {}

/// Runs one seed of one job.
///
/// # Errors
/// When a rule is broken; boxed, for it carries its trace.
pub fn run_seed(job: JobKind, seed: u64) -> Result<Report, Box<Failure>> {
    report(World::new(job, seed, None))
}

/// Runs one seed of one job on a storage that never gets better; it must come to its end all the same.
///
/// # Errors
/// As [`run_seed`].
pub fn run_seed_in(job: JobKind, seed: u64, weather: Weather) -> Result<Report, Box<Failure>> {
    report(World::new(job, seed, Some(weather)))
}

fn report(mut world: World) -> Result<Report, Box<Failure>> {
    match world.run() {
        Ok(()) => Ok(world.report()),
        Err(reason) => Err(world.failure(reason)),
    }
}

/// What the seed decided before the first step.
pub(crate) struct Conditions {
    pub(crate) checkpoints: Settings,
    pub(crate) max_parallelism: MaxParallelism,
    pub(crate) flow: FlowLimits,
    pub(crate) runs: RunSettings,
    /// Longest wait of an upload, in milliseconds.
    pub(crate) slow_ms: u64,
    fault_steps: u64,
    crashes_per_mille: u64,
    retries: bool,
    pub(crate) wire: bool,
    /// Bytes of keyed state in memory; the rest is in a cold store.
    pub(crate) memory: Option<usize>,
    /// Little fails and input comes slowly, so that many epochs complete and runs are merged many times.
    pub(crate) quiet: bool,
    /// How many of 1000 epochs are copied as savepoints.
    pub(crate) savepoints_per_mille: u64,
}

impl Conditions {
    /// A cold store and a budget of its own for an attempt.
    pub(crate) fn cold(&self) -> Option<ColdBacking> {
        let bytes = self.memory?;
        Some(ColdBacking { stores: Arc::new(MemoryColdStores), budget: MemoryBudget::new(bytes) })
    }

    fn choose(random: &mut SplitMix64) -> Conditions {
        // From a generator of its own: what older seeds choose stays as it was.
        let mut apart = random.clone().split();
        let memory = [None, None, Some(0), Some(2_000), Some(20_000)][apart.below(5) as usize];
        let records = 1 << random.below(8);
        let quiet = random.chance(150);
        let checkpoints = Settings {
            interval_ms: match random.below(5) {
                _ if quiet => Some(20),
                0 => None,
                _ => Some(20 + random.below(150)),
            },
            min_pause_ms: random.below(3) * 10,
            timeout_ms: 400 + random.below(2_000),
            max_concurrent: 1 + random.below(3) as u32,
            tolerable_failures: [0, 1, 3, u32::MAX][random.below(4) as usize],
            retained: 1 + random.below(3) as u32,
            publish_retry_ms: 1 + random.below(50),
            max_cleanups: random.below(4) as u32,
            compaction: CompactionPolicy {
                fan_in: 2 + random.below(3) as u32,
                excess_percent: [20, 100_000][random.below(2) as usize],
                min_bytes: random.below(2) * 4_096,
                max_depth: [2 + random.below(6) as u32, 64][random.below(2) as usize],
                max_running: random.below(4).min(2) as u32,
                min_piece_bytes: [0, 1_000, 1 << 20][apart.below(3) as usize],
            },
            excess_limit_percent: [0, 200][apart.below(2) as usize],
            drop_undeclared: false,
        };
        Conditions {
            checkpoints,
            max_parallelism: MaxParallelism::new([4, 7, 16, 128][random.below(4) as usize]).unwrap_or_default(),
            flow: FlowLimits { total_bytes: u64::MAX, records, bytes: 1 << 20 },
            runs: RunSettings {
                target_file_bytes: [200, 2_000, 1 << 26][random.below(3) as usize],
                block_bytes: [64, 4_096][random.below(2) as usize],
                ..RunSettings::default()
            },
            slow_ms: if quiet { 0 } else { [0, 5, 300, 3_000][random.below(4) as usize] },
            fault_steps: if quiet { 12_000 } else { 500 + random.below(6_000) },
            crashes_per_mille: if quiet { 0 } else { [0, 2, 5][random.below(3) as usize] },
            retries: random.chance(500),
            wire: random.chance(300),
            memory,
            quiet,
            savepoints_per_mille: 0,
        }
    }
}

/// Seeds below this have stories, which happened before savepoints were part of the world.
const FIRST_SEED_WITH_SAVEPOINTS: u64 = 1_000;

/// Everything there is.
pub(crate) struct World {
    kind: JobKind,
    seed: u64,
    pub(crate) random: SplitMix64,
    /// Chance for what was added to the world later.
    pub(crate) aside: SplitMix64,
    pub(crate) job: Rc<dyn SimJob>,
    pub(crate) conditions: Rc<Conditions>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) memory: MemoryStorage,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) outside: Outside,
    pub(crate) trace: Trace,
    pub(crate) checker: Checker,
    pub(crate) counters: Report,
    faults: FaultPlan,
    /// What storage is like for ever, if that is fixed.
    weather: Option<Weather>,
    live: Option<Attempt>,
    zombies: Vec<Attempt>,
    /// The process whose attempt ran last, as long as it may run another.
    writer: Option<WriterId>,
    calm: bool,
    done: bool,
}

impl World {
    fn new(kind: JobKind, seed: u64, weather: Option<Weather>) -> World {
        let mut random = SplitMix64::new(seed ^ 0x6d69_6c6c_706f_6e64);
        let mut conditions = Conditions::choose(&mut random);
        // Chance of its own, so that stories stay as they are.
        let mut aside = SplitMix64::new(seed ^ 0x7361_7665);
        if seed >= FIRST_SEED_WITH_SAVEPOINTS && aside.chance(500) {
            conditions.savepoints_per_mille = 300;
        }
        let job: Rc<dyn SimJob> = kind.make(&mut random).into();
        let memory = MemoryStorage::new();
        let faults = FaultPlan::new(random.next_u64());
        let faulty = Faults::new(memory.clone(), faults.clone());
        let clock = Arc::new(ManualClock::new(1_000_000));
        if let Some(weather) = weather {
            weather.begin(&faults, &clock);
        }
        let storage: Arc<dyn Storage> = if conditions.retries || weather.is_some() {
            let attempts = weather.map_or(2, |_| weather::ATTEMPTS_FOR_EVER);
            let policy = RetryPolicy { attempts, ..RetryPolicy::default() };
            Arc::new(Retry::new(faulty, policy, random.next_u64(), |_| {}))
        } else {
            Arc::new(faulty)
        };
        World {
            kind,
            seed,
            random,
            aside,
            checker: Checker::new(Rc::clone(&job)),
            job,
            conditions: Rc::new(conditions),
            clock,
            memory,
            storage,
            outside: Outside::new(),
            trace: Trace::default(),
            counters: Report::default(),
            faults,
            weather,
            live: None,
            zombies: Vec::new(),
            writer: None,
            calm: false,
            done: false,
        }
    }

    fn failure(&self, reason: String) -> Box<Failure> {
        Box::new(Failure { job: self.kind, seed: self.seed, reason, trace: self.trace.tail() })
    }

    fn report(&self) -> Report {
        Report {
            storage_faults: self.faults.injected(),
            repeated_commits: self.outside.repeated_commits(),
            completed: self.checker.completed(),
            lines: self.checker.lines(),
            trace: self.trace.hash(),
            ..self.counters.clone()
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let fault_steps = self.conditions.fault_steps;
        while self.counters.steps < fault_steps && !self.done {
            self.disturb()?;
            self.step()?;
        }
        self.become_calm();
        let attempts = self.counters.attempts;
        let limit = self.counters.steps + CALM_STEPS;
        while !self.done {
            self.step()?;
            if self.counters.attempts > attempts + CALM_ATTEMPTS {
                return Err(format!("{CALM_ATTEMPTS} attempts failed although nothing fails any more"));
            }
            if self.counters.steps > limit {
                let state = self.live.as_ref().map_or_else(String::new, Attempt::describe);
                return Err(format!("the job does not end in {CALM_STEPS} calm steps: {state}"));
            }
        }
        self.checker.at_end(&self.outside, &self.memory)?;
        self.run_again()
    }

    /// A job that has finished is started once more: it must add nothing.
    fn run_again(&mut self) -> Result<(), String> {
        self.trace.add(|| "once more".to_owned());
        self.done = false;
        let limit = self.counters.steps + CALM_STEPS;
        while !self.done {
            self.step()?;
            if self.counters.steps > limit {
                return Err("a finished job, started again, does not end".to_owned());
            }
        }
        self.checker.at_end(&self.outside, &self.memory)
    }

    /// One thing goes wrong, or not.
    fn disturb(&mut self) -> Result<(), String> {
        let crashes = self.conditions.crashes_per_mille;
        let commits_last = self.live.as_ref().is_some_and(Attempt::is_finishing);
        if self.random.chance(if commits_last { 20 * crashes } else { crashes }) {
            self.crash();
        }
        match self.random.below(900) {
            0..3 if !self.conditions.quiet && self.weather.is_none() => self.change_weather(),
            3..7 => self.checker.probe(self.random.next_u64(), &self.memory, &self.conditions, &mut self.counters)?,
            7..12 => self.storm(),
            12 if crashes > 0 || self.random.chance(200) => self.ask(Reason::Stop),
            13 if !self.zombies.is_empty() => {
                let at = self.random.below(self.zombies.len() as u64) as usize;
                self.trace.add(|| "a zombie dies".to_owned());
                self.zombies.remove(at);
            }
            _ => {}
        }
        Ok(())
    }

    fn crash(&mut self) {
        let Some(attempt) = &self.live else { return };
        let number = attempt.number();
        match self.random.below(4) {
            0 => {
                self.trace.add(|| format!("{number} is killed"));
                self.live = None;
            }
            1 if self.zombies.len() < 2 => {
                self.trace.add(|| format!("{number} is given up and runs on"));
                self.zombies.extend(self.live.take());
                self.writer = None;
            }
            kind => {
                let fault = if kind == 2 { Fault::Error } else { Fault::Panic };
                let calls = self.random.below(60);
                self.trace.add(|| format!("{number} will fail by {fault:?} after {calls} calls"));
                attempt.trap().arm(calls, fault);
            }
        }
    }

    /// How storage behaves from now on.
    fn change_weather(&mut self) {
        let per_mille = weather::change(&self.faults, &mut self.random);
        self.trace.add(|| format!("storage fails in {per_mille} of 1000 calls"));
    }

    fn storm(&mut self) {
        for _ in 0..1 + self.random.below(3) {
            self.ask(Reason::Manual);
        }
    }

    fn ask(&mut self, reason: Reason) {
        let now_ms = self.now_ms();
        if let Some(attempt) = &mut self.live {
            let number = attempt.number();
            self.trace.add(|| format!("{number} is asked: {reason:?}"));
            attempt.ask(now_ms, reason);
        }
    }

    fn become_calm(&mut self) {
        self.trace.add(|| "calm".to_owned());
        if self.weather.is_none() {
            self.faults.set_enabled(false);
        }
        self.zombies.clear();
        self.calm = true;
        if let Some(attempt) = &self.live {
            attempt.trap().disarm();
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm
    }

    pub(crate) fn now_ms(&self) -> i64 {
        millpond_core::Clock::now_ms(&*self.clock)
    }

    /// Somebody does something.
    fn step(&mut self) -> Result<(), String> {
        self.counters.steps += 1;
        if !self.zombies.is_empty() && self.random.chance(300) {
            let at = self.random.below(self.zombies.len() as u64) as usize;
            let mut zombie = self.zombies.swap_remove(at);
            match zombie.step(self)? {
                None => self.zombies.push(zombie),
                Some(ended) => self.note_end(&zombie, &ended),
            }
        }
        match self.live.take() {
            // Nobody restarts a job without pause.
            None if self.random.chance(900) => self.clock.advance(1),
            None => self.start()?,
            Some(mut attempt) => match attempt.step(self)? {
                None => {
                    self.live = Some(attempt);
                    self.checker.check_lines(&self.outside)?;
                }
                Some(ended) => {
                    self.note_end(&attempt, &ended);
                    match ended {
                        Ended::Finished => self.done = true,
                        Ended::Stopped => self.counters.stops += 1,
                        Ended::Failed(_) => {}
                        Ended::Fenced if self.zombies.is_empty() => {
                            return Err(format!("{} is fenced, and nobody else is there", attempt.number()));
                        }
                        Ended::Fenced => {}
                    }
                }
            },
        }
        self.checker.check_commits(&self.outside)
    }

    fn note_end(&mut self, attempt: &Attempt, ended: &Ended) {
        let number = attempt.number();
        self.counters.fenced += u64::from(*ended == Ended::Fenced);
        self.trace.add(|| format!("{number} has ended: {ended:?}"));
    }

    fn start(&mut self) -> Result<(), String> {
        let workers = 1 + self.random.below(4) as u32;
        let other = WriterId(self.random.next_u64());
        let writer = self.writer.filter(|_| self.random.chance(500)).unwrap_or(other);
        self.writer = Some(writer);
        self.counters.attempts += 1;
        let armed = (!self.calm && self.random.chance(100)).then(|| self.random.below(20));
        match Attempt::start(self, workers, writer, armed)? {
            Start::Running(attempt) => {
                self.live = Some(*attempt);
                self.checker.check_commits(&self.outside)?;
                self.checker.check_lines(&self.outside)?;
            }
            Start::AlreadyFinished => self.done = true,
            Start::Failed(reason) => {
                self.trace.add(|| format!("cannot start: {reason}"));
                if self.calm {
                    return Err(format!("cannot start although nothing fails any more: {reason}"));
                }
            }
        }
        Ok(())
    }
}
