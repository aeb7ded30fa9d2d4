//! The memory of the process as one number, and how it is split.
//!
//! Owns the split alone. Whoever is given a share keeps to it: state its hot tables, the cold store its
//! caches, the engine its channels and uploads.

/// How the memory of a process is split. See `docs/memory.md` for the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// All of it, in bytes.
    pub total: u64,
    /// Keyed states: native values, and changed rows until the cold store has them: 9 of 16 parts.
    pub state: u64,
    /// The cold store's block cache and write buffers: 4 of 16 parts.
    pub store: u64,
    /// Runs that are being encoded and stored: 1 of 16 parts.
    pub uploads: u64,
    /// Records in flight between subtasks: 1 of 16 parts. The last part is nobody's: code, stacks, what an
    /// allocator loses.
    pub flight: u64,
}

impl MemoryPlan {
    /// The least memory that can be split: 64 MiB.
    pub const LEAST: u64 = 64 << 20;

    /// Splits `total` bytes; less than [`MemoryPlan::LEAST`] counts as that.
    #[must_use]
    pub fn of(total: u64) -> MemoryPlan {
        let total = total.max(MemoryPlan::LEAST);
        let part = total / 16;
        MemoryPlan { total, state: 9 * part, store: 4 * part, uploads: part, flight: part }
    }

    /// Size of one run file, such that those which are in memory at the same time fit the share of uploads: two of
    /// each upload thread, one of each merge.
    #[must_use]
    pub fn file(&self) -> u64 {
        (self.uploads / FILES_IN_MEMORY).max(LEAST_FILE_BYTES)
    }

    /// What is kept of the memory of one snapshot for the next: two pieces of one, and the files.
    #[must_use]
    pub fn spare(&self) -> u64 {
        self.state / 8 + self.uploads
    }

    /// Splits half of what this machine, or the container around this process, has.
    #[must_use]
    pub fn of_machine() -> MemoryPlan {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let machine = read("/proc/meminfo").and_then(|text| total_of_meminfo(&text));
        let container = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
        let known = machine.into_iter().chain(container).min();
        MemoryPlan::of(known.map_or(UNKNOWN_MACHINE, |bytes| bytes / 2))
    }
}

/// Files in memory at a time: two of each of two upload threads, and one of each of two merges, with what it reads.
const FILES_IN_MEMORY: u64 = 8;
/// Smaller files would cost a store far away more than they save memory.
const LEAST_FILE_BYTES: u64 = 1 << 20;

/// The budget on a machine that does not tell what it has.
const UNKNOWN_MACHINE: u64 = 1 << 30;

/// The total in the text of `/proc/meminfo`, in bytes.
fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_never_exceed_the_whole() {
        for total in [0, MemoryPlan::LEAST, 100_000_001, 2_000_000_000, 1 << 40] {
            let plan = MemoryPlan::of(total);
            let shares = plan.state + plan.store + plan.uploads + plan.flight;
            assert!(shares <= plan.total && shares >= plan.total / 16 * 15, "{plan:?}");
            assert!(plan.file() * FILES_IN_MEMORY <= plan.uploads.max(8 << 20), "{plan:?}");
        }
    }

    #[test]
    fn the_memory_of_a_machine_is_read_in_bytes() {
        let text = "MemTotal:       24601408 kB\nMemFree:         1234 kB\n";
        assert_eq!(total_of_meminfo(text), Some(24_601_408 * 1_024));
        assert_eq!(total_of_meminfo("MemFree: 1 kB\n"), None);
        assert!(MemoryPlan::of_machine().total >= MemoryPlan::LEAST);
    }
}
