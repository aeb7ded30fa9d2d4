//! Every option of RocksDB that is not its default, from one number: how much memory it may use.
//!
//! The block cache is that number. Write buffers, filters and indexes are charged to it, so they push blocks out
//! instead of coming on top.

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DataBlockIndexType, Env, LogLevel,
    LruCacheOptions, Options, ReadOptions, SliceTransform, WriteBufferManager, WriteOptions,
};

use crate::key::{HEAD_BYTES, entry_bytes};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes of a block: small, since a look-up reads one whole.
const BLOCK_BYTES: usize = 4 << 10;
/// Bytes of a piece of an index or filter.
const METADATA_BLOCK_BYTES: usize = 8 << 10;
/// One look-up in a hundred of a key that is not there reads a block.
const FILTER_BITS_PER_KEY: f64 = 10.0;
/// Flushes and compactions at once.
const BACKGROUND_JOBS: i32 = 2;
/// Open files. A table that is open costs some KiB beside the cache.
const OPEN_FILES: i32 = 512;

/// The memory, as it is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// The block cache, with all that is charged to it.
    pub(crate) cache: u64,
    /// All write buffers together.
    pub(crate) write_buffers: u64,
    /// One write buffer.
    pub(crate) write_buffer: u64,
    /// Bytes of a file.
    pub(crate) file: u64,
}

impl Shares {
    pub(crate) fn of(bytes: u64) -> Shares {
        let cache = bytes.max(8 * MIB);
        let write_buffers = cache * 2 / 5;
        // Two of one column family: one is filled while the other is written out.
        let write_buffer = (write_buffers / 3).clamp(MIB, 64 * MIB);
        Shares { cache, write_buffers, write_buffer, file: write_buffer.clamp(4 * MIB, 64 * MIB) }
    }
}

/// How filters and indexes of a column family are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// In pieces of [`METADATA_BLOCK_BYTES`]: of many small rows they are large, and a look-up needs little of them.
    Pieces,
    /// Whole for each file: of few large rows they are small, and a look-up in pieces would cost more than it saves.
    Whole,
}

/// Rows of at least this many bytes are large.
const LARGE_ROW_BYTES: usize = 200;

impl Metadata {
    /// What suits rows of this size.
    pub(crate) fn of_rows(mean_bytes: usize) -> Metadata {
        if mean_bytes >= LARGE_ROW_BYTES { Metadata::Whole } else { Metadata::Pieces }
    }
}

/// What all column families share.
pub(crate) struct Resources {
    pub(crate) shares: Shares,
    cache: Cache,
    write_buffers: WriteBufferManager,
}

impl Resources {
    pub(crate) fn new(bytes: u64) -> Resources {
        let shares = Shares::of(bytes);
        let mut options = LruCacheOptions::default();
        options.set_capacity(usize::try_from(shares.cache).unwrap_or(usize::MAX));
        // Few cores: few shards, so that large blocks of filters fit each of them.
        options.set_num_shard_bits(if shares.cache < 64 * MIB { 0 } else { 4 });
        let cache = Cache::new_lru_cache_opts(&options);
        let limit = usize::try_from(shares.write_buffers).unwrap_or(usize::MAX);
        // Full write buffers hold up the background thread that writes, by the limits of each column family.
        let write_buffers = WriteBufferManager::new_write_buffer_manager_with_cache(limit, false, cache.clone());
        Resources { shares, cache, write_buffers }
    }

    /// Bytes in the cache, with all that is charged to it.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.get_usage() as u64
    }
}

/// The options of column families, and of files that they take over.
pub(crate) struct FamilyOptions {
    /// Also those of the database.
    pub(crate) pieces: Options,
    whole: Options,
}

impl FamilyOptions {
    pub(crate) fn new(resources: &Resources) -> Result<FamilyOptions, rocksdb::Error> {
        let pieces = options(resources)?;
        let mut whole = pieces.clone();
        whole.set_block_based_table_factory(&tables(resources, Metadata::Whole));
        Ok(FamilyOptions { pieces, whole })
    }

    pub(crate) fn of(&self, metadata: Metadata) -> &Options {
        match metadata {
            Metadata::Pieces => &self.pieces,
            Metadata::Whole => &self.whole,
        }
    }
}

/// The options of the database.
fn options(resources: &Resources) -> Result<Options, rocksdb::Error> {
    let shares = resources.shares;
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_error_if_exists(true);
    options.set_env(&background()?);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    options.set_max_open_files(OPEN_FILES);
    options.set_write_buffer_manager(&resources.write_buffers);
    // Nothing is logged ahead, and nobody opens it again: no syncs, hardly any text.
    options.set_use_fsync(false);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(1);
    options.set_max_log_file_size(MIB as usize);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_bytes_per_sync(MIB);
    options.set_compaction_readahead_size(256 * KIB as usize);
    options.set_writable_file_max_buffer_size(256 * KIB);
    column_family(&mut options, shares);
    options.set_block_based_table_factory(&tables(resources, Metadata::Pieces));
    Ok(options)
}

fn column_family(options: &mut Options, shares: Shares) {
    options.set_write_buffer_size(shares.write_buffer as usize);
    options.set_max_write_buffer_number(3);
    options.set_arena_block_size((shares.write_buffer / 16).clamp(64 * KIB, MIB) as usize);
    options.set_memtable_prefix_bloom_ratio(0.05);
    options.set_memtable_whole_key_filtering(true);
    let beginning = SliceTransform::create("millpond.entry", entry, Some(|place| entry_bytes(place).is_some()));
    options.set_prefix_extractor(beginning);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_target_file_size_base(shares.file);
    options.set_max_bytes_for_level_base(4 * shares.write_buffer);
    options.set_level_zero_file_num_compaction_trigger(4);
    options.set_level_zero_slowdown_writes_trigger(20);
    options.set_level_zero_stop_writes_trigger(36);
    // What is young is written again soon: compressing it is not worth the time.
    options.set_compression_type(DBCompressionType::Lz4);
    let mut levels = [DBCompressionType::Lz4; 7];
    levels[0] = DBCompressionType::None;
    levels[1] = DBCompressionType::None;
    options.set_compression_per_level(&levels);
}

fn entry(place: &[u8]) -> &[u8] {
    &place[..entry_bytes(place).unwrap_or(HEAD_BYTES.min(place.len()))]
}

fn tables(resources: &Resources, metadata: Metadata) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&resources.cache);
    tables.set_block_size(BLOCK_BYTES);
    tables.set_bloom_filter(FILTER_BITS_PER_KEY, false);
    tables.set_optimize_filters_for_memory(true);
    tables.set_whole_key_filtering(true);
    // Indexes and filters live in the cache, so that their memory is bounded too.
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    if metadata == Metadata::Pieces {
        tables.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        tables.set_partition_filters(true);
        tables.set_metadata_block_size(METADATA_BLOCK_BYTES);
        tables.set_pin_top_level_index_and_filter(true);
    }
    tables.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    tables.set_format_version(6);
    tables
}

/// The threads of the whole process, behind those that process records.
fn background() -> Result<Env, rocksdb::Error> {
    let mut environment = Env::new()?;
    environment.set_high_priority_background_threads(1);
    environment.set_low_priority_background_threads(BACKGROUND_JOBS - 1);
    environment.lower_thread_pool_cpu_priority();
    environment.lower_thread_pool_io_priority();
    Ok(environment)
}

/// Writing without a log.
pub(crate) fn writing() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    // A write that would have to wait says so instead.
    options.set_no_slowdown(true);
    options.set_memtable_insert_hint_per_batch(true);
    options
}

/// Looking up single rows: nothing is read ahead.
pub(crate) fn looking_up() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_readahead_size(0);
    options
}

/// Reading rows in order between two places.
pub(crate) fn scanning(start: Vec<u8>, end: Option<Vec<u8>>, one_entry: bool) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(start);
    if let Some(end) = end {
        options.set_iterate_upper_bound(end);
    }
    options.set_total_order_seek(!one_entry);
    options.set_prefix_same_as_start(one_entry);
    // A walk over everything would push out what look-ups need.
    options.fill_cache(one_entry);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_rows_have_whole_filters() {
        assert_eq!([0, 20, 199, 200, 5_000].map(Metadata::of_rows), {
            use Metadata::{Pieces, Whole};
            [Pieces, Pieces, Pieces, Whole, Whole]
        });
    }

    #[test]
    fn write_buffers_are_a_part_of_the_cache_and_never_below_one_mebibyte() {
        for bytes in [0, 16 * MIB, 100_000_000, 1 << 34] {
            let shares = Shares::of(bytes);
            assert!(shares.write_buffers < shares.cache && shares.write_buffer >= MIB, "{shares:?}");
            assert!(shares.write_buffer <= 64 * MIB);
        }
    }
}
