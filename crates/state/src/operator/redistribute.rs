//! Who gets which operator state when a job is restored. Pure; rules OS-10 to OS-16.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_core::MaxParallelism;

use super::pieces::Pieces;
use super::snapshot::{BroadcastSnapshot, ListMode, ListSnapshot, OperatorStateSnapshot};
use crate::error::StateError;

/// Gives the operator state of all old subtasks, in the order of their indexes, to `new_parallelism`
/// new ones. A subtask that reported nothing stands as the default snapshot.
///
/// - Split lists stay where they are at equal parallelism (OS-11). Otherwise all elements are lined
///   up by old subtask and dealt out in consecutive runs; the extra elements of the next name begin
///   where those of the last ended (OS-10, OS-12). Names go in order.
/// - Union lists go to everybody, always (OS-13).
/// - Of a broadcast map, subtask `i` gets the copy of old subtask `i mod n`, or another one where
///   that has none (OS-14, OS-15).
/// - Raw pieces go like a split list (OS-16), raw bytes of a key group to its owner.
///
/// # Errors
/// When the new parallelism is not in `1..=max`, or subtasks disagree on mode or schema of a state.
pub fn redistribute(
    old: &[OperatorStateSnapshot],
    max: MaxParallelism,
    new_parallelism: u32,
) -> Result<Vec<OperatorStateSnapshot>, StateError> {
    max.check(new_parallelism).map_err(|_| StateError::Parallelism { given: new_parallelism, max: max.get() })?;
    let mut new = vec![OperatorStateSnapshot::default(); new_parallelism as usize];
    let mut start = 0;
    for (name, copies) in by_name(old, |snapshot| &snapshot.lists, |list| &list.name) {
        give_list(name, &copies, old.len(), &mut new, &mut start)?;
    }
    for (name, copies) in by_name(old, |snapshot| &snapshot.broadcasts, |map| &map.name) {
        give_broadcast(name, &copies, old.len(), &mut new)?;
    }
    if old.len() == new.len() {
        old.iter().zip(&mut new).for_each(|(old, new)| new.raw_pieces = old.raw_pieces.clone());
    } else {
        let pieces: Vec<&Pieces> = old.iter().map(|snapshot| &snapshot.raw_pieces).collect();
        let dealt = deal(&pieces, new.len(), &mut 0);
        dealt.into_iter().zip(&mut new).for_each(|(pieces, new)| new.raw_pieces = pieces);
    }
    for (group, bytes) in old.iter().flat_map(|snapshot| &snapshot.raw_keyed) {
        if max.all().contains(*group) {
            let owner = max.owner_of(*group, new_parallelism) as usize;
            new[owner].raw_keyed.insert(*group, Arc::clone(bytes));
        }
    }
    Ok(new)
}

/// A state's copies with the indexes of the old subtasks that hold them.
type Copies<'a, S> = Vec<(usize, &'a S)>;

fn by_name<'a, S>(
    old: &'a [OperatorStateSnapshot],
    states: impl Fn(&'a OperatorStateSnapshot) -> &'a Vec<S>,
    name: impl Fn(&'a S) -> &'a String,
) -> BTreeMap<&'a str, Copies<'a, S>> {
    let mut all: BTreeMap<&str, Copies<'_, S>> = BTreeMap::new();
    for (index, snapshot) in old.iter().enumerate() {
        for state in states(snapshot) {
            all.entry(name(state)).or_default().push((index, state));
        }
    }
    all
}

fn give_list(
    name: &str,
    copies: &[(usize, &ListSnapshot)],
    old_parallelism: usize,
    new: &mut [OperatorStateSnapshot],
    start: &mut usize,
) -> Result<(), StateError> {
    let Some((_, first)) = copies.first() else {
        return Ok(());
    };
    if copies.iter().any(|(_, list)| list.mode != first.mode) {
        return Err(disagree(name, "it is a split list on some and a union list on others"));
    }
    if copies.iter().any(|(_, list)| list.schema != first.schema) {
        return Err(disagree(name, "the schemas of its elements differ"));
    }
    let with = |elements| ListSnapshot { elements, ..(*first).clone() };
    if first.mode == ListMode::Union {
        let all: Pieces = copies.iter().flat_map(|(_, list)| list.elements.iter().cloned()).collect();
        new.iter_mut().for_each(|new| new.lists.push(with(all.clone())));
    } else if old_parallelism == new.len() {
        new.iter_mut().for_each(|new| new.lists.push(with(Pieces::default())));
        for (index, list) in copies {
            if let Some(given) = new[*index].lists.last_mut() {
                list.elements.iter().for_each(|piece| given.elements.push(Arc::clone(piece)));
            }
        }
    } else {
        let elements: Vec<&Pieces> = copies.iter().map(|(_, list)| &list.elements).collect();
        let dealt = deal(&elements, new.len(), start);
        dealt.into_iter().zip(new).for_each(|(elements, new)| new.lists.push(with(elements)));
    }
    Ok(())
}

/// Consecutive runs of equal length, the first ones from `start` on with one element more; `start`
/// moves on to the first that got none.
fn deal(pieces: &[&Pieces], parallelism: usize, start: &mut usize) -> Vec<Pieces> {
    let total: usize = pieces.iter().map(|pieces| pieces.len()).sum();
    let (base, extra) = (total / parallelism, total % parallelism);
    let mut line = pieces.iter().flat_map(|pieces| pieces.iter().cloned());
    let mut dealt = vec![Pieces::default(); parallelism];
    for turn in 0..parallelism {
        let count = base + usize::from(turn < extra);
        dealt[(*start + turn) % parallelism] = line.by_ref().take(count).collect();
    }
    *start = (*start + extra) % parallelism;
    dealt
}

fn give_broadcast(
    name: &str,
    copies: &[(usize, &BroadcastSnapshot)],
    old_parallelism: usize,
    new: &mut [OperatorStateSnapshot],
) -> Result<(), StateError> {
    let Some((_, first)) = copies.first() else {
        return Ok(());
    };
    if copies.iter().any(|(_, map)| map.key != first.key || map.value != first.value) {
        return Err(disagree(name, "the schemas of its entries differ"));
    }
    for (index, new) in new.iter_mut().enumerate() {
        let wanted = index % old_parallelism;
        let own = copies.iter().find(|(holder, _)| *holder == wanted);
        let (_, copy) = own.unwrap_or(&copies[index % copies.len()]);
        new.broadcasts.push((*copy).clone());
    }
    Ok(())
}

fn disagree(name: &str, reason: &str) -> StateError {
    StateError::SubtasksDisagree { state: name.to_owned(), reason: reason.to_owned() }
}
