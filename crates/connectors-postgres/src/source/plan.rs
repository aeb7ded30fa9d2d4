//! What the server has for a source: the tables of its publication, and its slot.

use std::time::{Duration, Instant};

use super::split::shown;
use super::{Rows, Settings};
use crate::PostgresError;
use crate::session::{Session, quoted};

/// Between two looks at a slot that is in use, or at transactions that are waited for.
const PAUSE: Duration = Duration::from_millis(50);

/// The tables that are read.
pub(super) struct Plan {
    pub(super) tables: Vec<PlannedTable>,
    /// After how long without an answer the server ends a replication connection; it speaks at half of it. Zero for never.
    pub(super) sender_timeout: Duration,
}

/// A table as it is now.
pub(super) struct PlannedTable {
    pub(super) schema: String,
    pub(super) name: String,
    /// Those that are published.
    pub(super) columns: Vec<PlannedColumn>,
    /// Indexes of the columns of the primary key, in its order.
    pub(super) key: Vec<usize>,
    /// Which rows are published, in SQL.
    pub(super) filter: Option<String>,
    identity: String,
}

pub(super) struct PlannedColumn {
    pub(super) name: String,
    pub(super) ty: u32,
    /// Its type in SQL, of any length: without one, `character` and `bit` would be of length 1.
    pub(super) type_name: String,
    /// Its collation in SQL, if it has one.
    pub(super) collation: Option<String>,
}

const TABLES: &str = "SELECT p.schemaname::text, p.tablename::text, c.relreplident::text, to_jsonb(p)->>'rowfilter', \
                      (to_jsonb(p)->'attnames')::text, c.oid FROM pg_publication_tables p \
                      JOIN pg_namespace n ON n.nspname = p.schemaname \
                      JOIN pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid WHERE p.pubname = $1 ORDER BY 1, 2";
const COLUMNS: &str = "SELECT a.attname::text, a.atttypid, format_type(a.atttypid, -1), \
                       (SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname) FROM pg_collation c \
                       JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = a.attcollation), \
                       (SELECT array_position(i.indkey::int2[], a.attnum) FROM pg_index i \
                       WHERE i.indrelid = a.attrelid AND i.indisprimary) FROM pg_attribute a \
                       WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum";
const SLOT: &str = "SELECT coalesce(plugin::text, ''), slot_type, coalesce(database::text, ''), active_pid, \
                    (confirmed_flush_lsn - '0/0')::bigint, to_jsonb(s)->>'wal_status', current_database()::text \
                    FROM pg_replication_slots s WHERE slot_name = $1";

impl Plan {
    /// Compares the settings with the database.
    pub(super) fn look(session: &Session, settings: &Settings) -> Result<Plan, PostgresError> {
        settings.check()?;
        let server = settings.connection.server();
        let levels = session.query("look at wal_level", "SELECT current_setting('wal_level')", &[])?;
        let found: String = levels.first().map(|row| row.get(0)).unwrap_or_default();
        if found != "logical" {
            return Err(PostgresError::WalLevel { server, found });
        }
        const TIMEOUT: &str = "SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'";
        let timeouts = session.query("look at wal_sender_timeout", TIMEOUT, &[])?;
        let timeout_ms = timeouts.first().map_or(0, |row| row.get::<_, i64>(0));
        let sender_timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let publication = &settings.publication;
        let operation = format!("look at publication {publication}");
        let wrong = |reason: &str| PostgresError::Publication {
            publication: publication.clone(),
            database: settings.connection.database(),
            server: server.clone(),
            reason: reason.to_owned(),
        };
        const FIND: &str = "SELECT 1 FROM pg_publication WHERE pubname = $1";
        if session.query(&operation, FIND, &[publication])?.is_empty() {
            return Err(wrong("does not exist"));
        }
        let mut tables = Vec::new();
        for row in session.query(&operation, TABLES, &[publication])? {
            let (schema, name): (String, String) = (row.get(0), row.get(1));
            if settings.reads(&schema, &name) {
                let published = row.get::<_, Option<String>>(4).and_then(|names| serde_json::from_str(&names).ok());
                let oid: u32 = row.get(5);
                let mut table = PlannedTable::look(session, oid, schema, name, published)?;
                (table.identity, table.filter) = (row.get(2), row.get(3));
                table.check(settings)?;
                tables.push(table);
            }
        }
        for wanted in &settings.tables {
            if !tables.iter().any(|table| table.is_called(wanted)) {
                return Err(wrong(&format!("does not publish table {wanted}")));
            }
        }
        if tables.is_empty() { Err(wrong("publishes no table")) } else { Ok(Plan { tables, sender_timeout }) }
    }

    /// Where in the plan a table is.
    pub(super) fn place(&self, schema: &str, name: &str) -> Option<usize> {
        self.tables.iter().position(|table| table.schema == schema && table.name == name)
    }
}

impl PlannedTable {
    fn look(
        session: &Session,
        oid: u32,
        schema: String,
        name: String,
        published: Option<Vec<String>>,
    ) -> Result<PlannedTable, PostgresError> {
        let rows = session.query(&format!("look at table {schema}.{name}"), COLUMNS, &[&oid])?;
        let (mut columns, mut key) = (Vec::new(), Vec::new());
        for row in rows {
            let column =
                PlannedColumn { name: row.get(0), ty: row.get(1), type_name: row.get(2), collation: row.get(3) };
            if published.as_ref().is_none_or(|published| published.contains(&column.name)) {
                if let Some(place) = row.get::<_, Option<i32>>(4) {
                    key.push((place, columns.len()));
                }
                columns.push(column);
            }
        }
        key.sort_unstable();
        let key = key.into_iter().map(|(_, at)| at).collect();
        Ok(PlannedTable { schema, name, columns, key, filter: None, identity: String::new() })
    }

    fn check(&self, settings: &Settings) -> Result<(), PostgresError> {
        let table = self.full_name();
        if settings.snapshot && self.key.is_empty() {
            return Err(PostgresError::NoPrimaryKey { table });
        }
        let found = identity_name(self.identity.as_bytes().first().copied().unwrap_or(b'n'));
        let wanted = match settings.rows {
            Rows::Changes if self.identity != "f" => {
                format!("changes need whole rows: ALTER TABLE {table} REPLICA IDENTITY FULL")
            }
            Rows::Upserts if self.key.is_empty() => "upserts need a primary key".to_owned(),
            Rows::Upserts if self.identity != "d" && self.identity != "f" => {
                format!("upserts need the primary key: ALTER TABLE {table} REPLICA IDENTITY DEFAULT")
            }
            _ => return Ok(()),
        };
        Err(PostgresError::Identity { table, found, wanted })
    }

    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.full_name() == name
    }

    pub(super) fn in_sql(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// A replica identity, for people.
pub(super) fn identity_name(identity: u8) -> &'static str {
    match identity {
        b'd' => "default",
        b'f' => "full",
        b'i' => "using index",
        _ => "nothing",
    }
}

/// A slot as it is now.
struct Slot {
    active_pid: Option<i32>,
    confirmed: u64,
}

impl Slot {
    fn look(session: &Session, settings: &Settings, position: u64) -> Result<Option<Slot>, PostgresError> {
        let slot = &settings.slot;
        let rows = session.query(&format!("look at replication slot {slot}"), SLOT, &[slot])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (plugin, kind): (String, String) = (row.get(0), row.get(1));
        let (database, ours): (String, String) = (row.get(2), row.get(6));
        let other = |reason: String| Err(PostgresError::OtherSlot { slot: slot.clone(), reason });
        if kind != "logical" || plugin != "pgoutput" {
            return other(format!("it is a {kind} slot of {plugin}, not of pgoutput"));
        }
        if database != ours {
            return other(format!("it is one of database {database}, not of {ours}"));
        }
        if row.get::<_, Option<String>>(5).as_deref() == Some("lost") {
            return Err(PostgresError::SlotLost { slot: slot.clone(), position: shown(position) });
        }
        let confirmed = row.get::<_, Option<i64>>(4).unwrap_or_default() as u64;
        Ok(Some(Slot { active_pid: row.get(3), confirmed }))
    }
}

/// Makes the slot ready to be read from `position` on, which is 0 for a source that has not begun. Gives where to begin.
pub(super) fn ready_slot(session: &Session, settings: &Settings, position: u64) -> Result<u64, PostgresError> {
    let started = Instant::now();
    loop {
        let Some(slot) = Slot::look(session, settings, position)? else {
            if position == 0 && settings.create_slot {
                return make_slot(session, settings);
            }
            let hint = if position == 0 { "; see create_slot" } else { "" };
            let (slot, server) = (settings.slot.clone(), settings.connection.server());
            return Err(PostgresError::NoSlot { slot, server, position: shown(position), hint });
        };
        if position != 0 && slot.confirmed > position {
            let (position, confirmed) = (shown(position), shown(slot.confirmed));
            return Err(PostgresError::SlotAhead { slot: settings.slot.clone(), position, confirmed });
        }
        let Some(pid) = slot.active_pid else { return Ok(position.max(slot.confirmed)) };
        // A former connection of ours may not have ended yet.
        if started.elapsed() >= settings.connection.deadline {
            let waited_ms = started.elapsed().as_millis();
            return Err(PostgresError::SlotInUse { slot: settings.slot.clone(), pid, waited_ms });
        }
        std::thread::sleep(PAUSE);
    }
}

fn make_slot(session: &Session, settings: &Settings) -> Result<u64, PostgresError> {
    const MAKE: &str = "SELECT (lsn - '0/0')::bigint FROM pg_create_logical_replication_slot($1, 'pgoutput')";
    let slot = &settings.slot;
    let rows = session.query(&format!("make replication slot {slot}"), MAKE, &[slot])?;
    let position = rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64);
    tracing::info!(slot, position = shown(position), "made a replication slot");
    Ok(position)
}

/// Waits until all transactions are over that write now. The slot tells none that was committed before it was made; one that
/// is committed in the log, but not visible yet, must be visible to the transaction that reads the tables.
pub(super) fn settle(session: &Session, go_on: impl Fn() -> bool) -> Result<(), PostgresError> {
    const END: &str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    const OVER: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= $1";
    let operation = "look at the transactions under way";
    let end: i64 = session.query(operation, END, &[])?.first().map_or(0, |row| row.get(0));
    let mut told = Instant::now();
    while go_on() {
        if session.query(operation, OVER, &[&end])?.first().is_none_or(|row| row.get(0)) {
            return Ok(());
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            tracing::warn!("waits for transactions that write, before the tables are read");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Drops a replication slot, so that the server keeps no log for it any more. For jobs that are not to run again. It is
/// no error when there is none.
///
/// # Errors
/// When the server cannot be reached, refuses, or the slot is in use.
pub fn drop_replication_slot(url: &str, slot: &str) -> Result<(), PostgresError> {
    const DROP: &str = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1";
    let connection = crate::session::Connection::new(url);
    let session = connection.open(connection.deadline)?;
    session.query(&format!("drop replication slot {slot}"), DROP, &[&slot]).map(drop)
}

/// The slot names that PostgreSQL takes.
pub(super) fn check_name(slot: &str) -> Result<(), PostgresError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if (1..64).contains(&slot.len()) && slot.bytes().all(fits) {
        return Ok(());
    }
    let reason = format!("{slot:?} is none: 1 to 63 of a to z, 0 to 9 and _");
    Err(PostgresError::Setting { setting: "slot".to_owned(), reason })
}

/// Where the log is now.
pub(super) fn end_of_log(session: &Session) -> Result<u64, PostgresError> {
    const END: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let rows = session.query("look at the end of the log", END, &[])?;
    Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
}
