//! What PostgreSQL tells of changes: messages of its output plugin.

use millpond_connectors_postgres::pgoutput::{Cell, Message, Old, decode};

/// A message or an error, and never more of anything than there are bytes.
pub(super) fn pgoutput(bytes: &[u8]) {
    let Ok(message) = decode(bytes) else { return };
    assert_eq!(decode(bytes).ok().as_ref(), Some(&message), "decoded twice");
    // A value takes a byte at least, a text five.
    let fits = |row: &[Cell]| {
        let text = |cell: &Cell| if let Cell::Text(text) = cell { text.len() + 4 } else { 0 };
        assert!(row.iter().map(|cell| 1 + text(cell)).sum::<usize>() <= bytes.len(), "more than there is");
    };
    match &message {
        Message::Relation(relation) => {
            let columns = relation.columns.iter().map(|(name, _)| name.len() + 10);
            let names = relation.schema.len() + relation.name.len();
            assert!(columns.sum::<usize>() + names <= bytes.len(), "more than there is");
        }
        Message::Insert { new, .. } => fits(new),
        Message::Delete { old, .. } => fits(&old.row),
        Message::Update { old, new, .. } => {
            old.iter().for_each(|Old { row, .. }| fits(row));
            fits(new);
        }
        Message::Truncate { relations } => assert!(relations.len() * 4 <= bytes.len(), "more than there is"),
        Message::Other => {}
    }
}

/// As PostgreSQL 15 sends them.
pub(super) fn pgoutput_seeds() -> Vec<Vec<u8>> {
    let row = b"\0\x03t\0\0\0\x02abnu";
    let relation =
        b"R\0\0\x40\x01public\0orders\0f\0\x02\x01id\0\0\0\0\x14\xff\xff\xff\xff\0note\0\0\0\0\x19\xff\xff\xff\xff";
    vec![
        relation.to_vec(),
        [b"I\0\0\x40\x01N", row.as_slice()].concat(),
        [b"U\0\0\x40\x01N", row.as_slice()].concat(),
        [b"U\0\0\x40\x01O", row.as_slice(), b"N", row].concat(),
        [b"U\0\0\x40\x01K", row.as_slice(), b"N", row].concat(),
        [b"D\0\0\x40\x01O", row.as_slice()].concat(),
        [b"D\0\0\x40\x01K", row.as_slice()].concat(),
        b"T\0\0\0\x02\x01\0\0\x40\x01\0\0\x40\x02".to_vec(),
        b"Y\0\0\x40\x01public\0mood\0".to_vec(),
        b"Opg_0\0".to_vec(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sound_message_is_read() {
        for bytes in pgoutput_seeds() {
            assert!(decode(&bytes).is_ok(), "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}
