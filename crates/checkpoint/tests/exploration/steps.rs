//! Everything that can happen next.

use millpond_checkpoint::log::Request;

use crate::shared::Shared;
use crate::world::{Execution, Mail, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It does not happen.
    Before,
    /// It happens and is reported as unknown.
    After,
    /// It is reported as unknown and may happen later.
    Delayed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Start,
    Crash(usize),
    Storage(usize, Fault),
    Land(usize),
    Deliver(usize, usize),
    Double(usize, usize),
    Lose(usize, usize),
    Decline(usize, usize),
    Trigger(usize),
    TimeOut(usize),
    Delete(usize),
    Merge(usize),
    List(usize),
}

impl World {
    /// Everything that can happen next.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let limits = &self.limits;
        let mut steps = self.deletions();
        for x in (0..self.executions.len()).filter(|x| self.executions[*x].alive) {
            if limits.crashes > 0 {
                steps.push(Step::Crash(x));
            }
            self.steps_of(x, &mut steps);
        }
        let in_the_way = |execution: &Shared<Execution>| {
            execution.alive && (!limits.zombies || execution.starting.is_some() && !limits.races)
        };
        if limits.starts > 0 && !self.executions.iter().any(in_the_way) {
            steps.push(Step::Start);
        }
        steps.extend((0..self.delayed.len()).map(Step::Land));
        steps
    }

    /// Deletions on their way; they outlive their execution.
    pub(crate) fn deletions(&self) -> Vec<Step> {
        let with_some = self.executions.iter().enumerate().filter(|(_, execution)| !execution.deletions.is_empty());
        with_some.map(|(x, _)| Step::Delete(x)).collect()
    }

    /// What the execution can do, apart from deletions and crashes.
    pub(crate) fn steps_of(&self, x: usize, steps: &mut Vec<Step>) {
        let (limits, execution) = (&self.limits, &self.executions[x]);
        if let Some(request) = execution.request() {
            steps.push(Step::Storage(x, Fault::None));
            if limits.storage_faults > 0 {
                steps.push(Step::Storage(x, Fault::Before));
                if request == Request::Create {
                    steps.extend([Step::Storage(x, Fault::After), Step::Storage(x, Fault::Delayed)]);
                }
            }
        }
        let deliverable = if limits.prompt_mail { 1 } else { usize::MAX };
        for (m, mail) in execution.mail.iter().enumerate().take(deliverable) {
            if execution.mail[..m].contains(mail) {
                continue;
            }
            steps.push(Step::Deliver(x, m));
            if limits.losses > 0 {
                steps.push(Step::Lose(x, m));
            }
            if limits.doubles > 0 {
                steps.push(Step::Double(x, m));
            }
            if limits.declines > 0 && matches!(mail, Mail::Trigger(..)) {
                steps.push(Step::Decline(x, m));
            }
        }
        let Some(coordinator) = &execution.coordinator else {
            return;
        };
        let in_flight = coordinator.in_flight().len();
        if coordinator.next_epoch().0 <= limits.epochs && in_flight < limits.concurrent as usize {
            steps.push(Step::Trigger(x));
        }
        if limits.timeouts > 0 && in_flight > 0 {
            steps.push(Step::TimeOut(x));
        }
        if limits.listings > 0 {
            steps.push(Step::List(x));
        }
        if !execution.merges.is_empty() {
            steps.push(Step::Merge(x));
        }
    }
}
