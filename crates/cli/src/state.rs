//! The command `state`: what is in a checkpoint, without the job's code.
//!
//! Reads only, and may run beside the job. Results are JSON lines on standard output; their fields are in
//! `docs/tools.md`.

pub(crate) mod arguments;
mod find;
mod print;
mod schema_text;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use millpond_core::{ErrorKind, KeyGroup};
use millpond_state_reader::{Entries, Format, ReaderError, StateEntry, StateInfo, StateReader, diff, export};
use serde_json::Value;

use crate::error::CliError;
use crate::extensions::Extensions;
use crate::settings::Settings;
use arguments::{OneState, SomeStates, StateCommand};
use print::{Named, TopLine};

/// Where results go.
pub(crate) type Out<'a> = dyn Write + Send + 'a;

/// The job that is looked at: the one that was named, else the only one in the checkpoint directory.
///
/// # Errors
/// When there is none or more than one, or the directory cannot be read.
pub(crate) fn job_name(settings: &Settings, extensions: &Extensions) -> Result<String, CliError> {
    find::job_name(&find::checkpoint_storage(settings, extensions)?, settings)
}

/// Carries out the command and writes its result to `out`.
///
/// # Errors
/// When there is no such checkpoint, operator, state or key, stored bytes are damaged, or `out` fails.
pub(crate) fn run(
    command: &StateCommand,
    settings: &Settings,
    extensions: &Extensions,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let reader = || find::open(&settings.start, settings, extensions);
    let done = match command {
        StateCommand::Ls { operator, text } => {
            let summaries = reader()?.summaries(operator.as_deref())?;
            if *text { write_text(out, &print::table(&summaries)) } else { write_lines(out, &summaries) }
        }
        StateCommand::Schema { operator, state, text } => {
            let states = chosen(&reader()?, operator.as_deref(), state.as_deref(), None)?;
            if *text { write_text(out, &schema_text::describe(&states)) } else { write_lines(out, &states) }
        }
        StateCommand::Get { state, key, user_key } => get(&reader()?, state, key, user_key.as_deref(), out),
        StateCommand::Scan { state, key_group, prefix, limit } => {
            let reader = reader()?;
            let info = one(&reader, state)?;
            let entries = match key_group {
                Some(group) => reader.entries_of_group(&info, KeyGroup(*group))?,
                None => reader.entries(&info)?,
            };
            scan(entries, prefix.as_deref(), limit.unwrap_or(usize::MAX), out)
        }
        StateCommand::Count { states } => {
            let reader = reader()?;
            let mut counts = some(&reader, states)?.into_iter().map(|info| reader.count(&info));
            counts.try_for_each(|count| write_line(out, &count?))
        }
        StateCommand::Top { states, number } => top(&reader()?, states, *number, out),
        StateCommand::Diff { first, second, states } => {
            let open = |text: &str| find::open(&find::parse(text)?, settings, extensions);
            differences(&open(first)?, &open(second)?, states, out)
        }
        StateCommand::Export { state, to, format } => {
            let reader = reader()?;
            let info = one(&reader, state)?;
            let ending = to.as_deref().and_then(Path::extension).and_then(|ending| ending.to_str());
            let format = format.map(Format::from).or_else(|| ending.and_then(Format::parse));
            write_export(&info, reader.entries(&info)?, format.unwrap_or(Format::JsonLines), to.as_deref(), out)
        }
    };
    match done.and_then(|()| out.flush().map_err(ReaderError::from)) {
        // A reader that has seen enough (`| head`) is no failure.
        Err(ReaderError::Output(source)) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn write_line(out: &mut Out<'_>, line: &impl serde::Serialize) -> Result<(), ReaderError> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

fn write_lines(out: &mut Out<'_>, lines: &[impl serde::Serialize]) -> Result<(), ReaderError> {
    lines.iter().try_for_each(|line| write_line(out, line))
}

fn write_text(out: &mut Out<'_>, text: &str) -> Result<(), ReaderError> {
    Ok(out.write_all(text.as_bytes())?)
}

/// Text that is no JSON is a string: `AA` means `"AA"`.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn one(reader: &StateReader, state: &OneState) -> Result<StateInfo, ReaderError> {
    reader.state(&state.operator, &state.state, state.kind)
}

fn some(reader: &StateReader, states: &SomeStates) -> Result<Vec<StateInfo>, ReaderError> {
    let mut all = chosen(reader, states.operator.as_deref(), states.state.as_deref(), states.kind)?;
    all.retain(|info| states.kind.is_none_or(|kind| kind == info.kind));
    Ok(all)
}

/// All states, those of an operator, or those with a name, of which there must be one.
fn chosen(
    reader: &StateReader,
    operator: Option<&str>,
    state: Option<&str>,
    kind: Option<millpond_state_reader::Kind>,
) -> Result<Vec<StateInfo>, ReaderError> {
    let mut all = reader.states(operator)?;
    if let (Some(operator), Some(state)) = (operator, state) {
        all.retain(|info| info.state == state);
        if all.is_empty() {
            reader.state(operator, state, kind)?;
        }
    }
    Ok(all)
}

fn get(
    reader: &StateReader,
    state: &OneState,
    key: &str,
    user_key: Option<&str>,
    out: &mut Out<'_>,
) -> Result<(), ReaderError> {
    let info = one(reader, state)?;
    let look = |key: &Value, user_key: Option<&Value>| reader.get(&info, key, user_key);
    let text = |text: &str| Value::String(text.to_owned());
    let user = user_key.map(json);
    let entries = match look(&json(key), user.as_ref()) {
        // `12` may be a number or, where keys are strings, a string; so may a user key.
        Err(error @ ReaderError::WrongKey { .. }) => {
            let as_text = user_key.map(text);
            let again = [(text(key), user), (json(key), as_text.clone()), (text(key), as_text)];
            let mut found = again.iter().filter_map(|(key, user)| look(key, user.as_ref()).ok());
            found.next().ok_or(error)?
        }
        other => other?,
    };
    write_lines(out, &entries)
}

fn scan(entries: Entries, prefix: Option<&str>, limit: usize, out: &mut Out<'_>) -> Result<(), ReaderError> {
    let wanted = |entry: &Result<StateEntry, ReaderError>| match (entry, prefix) {
        (Ok(entry), Some(prefix)) => {
            let key = entry.key.as_ref().or(entry.user_key.as_ref());
            key.is_some_and(|key| key.as_str().map_or_else(|| key.to_string(), str::to_owned).starts_with(prefix))
        }
        _ => true,
    };
    entries.filter(wanted).take(limit).try_for_each(|entry| write_line(out, &entry?))
}

fn top(reader: &StateReader, states: &SomeStates, number: usize, out: &mut Out<'_>) -> Result<(), ReaderError> {
    let mut operator = print::OperatorTotal::default();
    for info in some(reader, states)? {
        let named = Named { operator: &info.operator, state: Some(&info.state) };
        if operator.name() != Some(&info.operator) {
            operator.finish().map_or(Ok(()), |line| write_line(out, &line))?;
        }
        if !info.kind.is_keyed() {
            let count = reader.count(&info)?;
            operator.add(&info.operator, 0, count.entries, count.bytes);
            write_line(out, &TopLine::subtasks(named, &count))?;
            continue;
        }
        let top = reader.top(&info, number)?;
        operator.add(&info.operator, top.state.keys, top.state.entries, top.state.bytes);
        TopLine::all(named, &top).into_iter().try_for_each(|line| write_line(out, &line))?;
    }
    operator.finish().map_or(Ok(()), |line| write_line(out, &line))
}

/// Differences of all states that either has; each line also names operator and state.
fn differences(
    first: &StateReader,
    second: &StateReader,
    states: &SomeStates,
    out: &mut Out<'_>,
) -> Result<(), ReaderError> {
    let known = |reader: &StateReader| match some(reader, states) {
        // An operator or state that only one of them has is a difference, not a mistake.
        Err(error) if error.kind() == ErrorKind::Invalid => Ok((Vec::new(), Some(error))),
        other => other.map(|states| (states, None)),
    };
    let ((before, missing), (after, also_missing)) = (known(first)?, known(second)?);
    if let (Some(error), Some(_)) = (missing, also_missing) {
        return Err(error);
    }
    let same = |a: &StateInfo, b: &StateInfo| (&a.operator, &a.state, a.kind) == (&b.operator, &b.state, b.kind);
    let pairs = before.iter().map(|old| (Some(old), after.iter().find(|new| same(old, new))));
    let added = after.iter().filter(|new| !before.iter().any(|old| same(old, new))).map(|new| (None, Some(new)));
    for (old, new) in pairs.chain(added) {
        let Some(info) = new.or(old) else { continue };
        let named = Named { operator: &info.operator, state: Some(&info.state) };
        for difference in diff((first, old), (second, new))? {
            write_line(out, &print::DiffLine { named, difference: difference? })?;
        }
    }
    Ok(())
}

/// To a new file, written under another name until it is whole; or to standard output.
fn write_export(
    info: &StateInfo,
    entries: Entries,
    format: Format,
    to: Option<&Path>,
    out: &mut Out<'_>,
) -> Result<(), ReaderError> {
    let Some(path) = to else {
        // Through memory no larger than a buffer: Parquet wants to own its writer.
        return export(info, entries, format, print::Pass::new(out)).map(|_| ());
    };
    let refused = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if path.exists() {
        return Err(refused(io::Error::from(io::ErrorKind::AlreadyExists)).into());
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let file = File::create(&unfinished).map_err(refused)?;
    let written = export(info, entries, format, BufWriter::new(file));
    let renamed = written.and_then(|written| {
        std::fs::rename(&unfinished, path).map_err(refused)?;
        Ok(written)
    });
    match renamed {
        Ok(entries) => {
            tracing::info!("{entries} entries of state {:?} written to {}", info.state, path.display());
            Ok(())
        }
        Err(error) => {
            let _ = std::fs::remove_file(&unfinished);
            Err(error)
        }
    }
}
