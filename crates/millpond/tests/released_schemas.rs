//! What Millpond's own sources and sinks store, against the schemas that were released.

use millpond::connectors::{FileSplit, GeneratorSplit, PreparedFile};

#[test]
fn positions_of_file_sources_are_read_from_every_version() {
    millpond::assert_schema_unchanged!(FileSplit, "tests/schemas/file-split.json");
}

#[test]
fn positions_of_generators_are_read_from_every_version() {
    millpond::assert_schema_unchanged!(GeneratorSplit, "tests/schemas/generator-split.json");
}

#[test]
fn prepared_files_are_read_from_every_version() {
    millpond::assert_schema_unchanged!(PreparedFile, "tests/schemas/prepared-file.json");
}
