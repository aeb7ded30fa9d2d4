//! Schemas for reading: one line per state, one per field.

use std::fmt::Write;

use millpond_core::Schema;
use millpond_state_reader::StateInfo;

/// What a type looks like when it has no lines of its own.
fn inline(schema: &Schema) -> String {
    match schema {
        Schema::Option(inner) => format!("{}?", inline(inner)),
        Schema::Seq(inner) => format!("[{}]", inline(inner)),
        Schema::Map(key, value) => format!("{{{}: {}}}", inline(key), inline(value)),
        Schema::Tuple(parts) => format!("({})", parts.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Schema::Struct(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, field)| format!("{name}: {}", inline(field))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Schema::Enum(variants) => {
            let variants: Vec<String> = variants
                .iter()
                .map(|(_, name, content)| match content {
                    Schema::Primitive(unit) if unit == "unit" => name.clone(),
                    content => format!("{name} {}", inline(content)),
                })
                .collect();
            variants.join(" | ")
        }
        other => other.to_string(),
    }
}

/// The states with their types.
#[must_use]
pub(super) fn describe(states: &[StateInfo]) -> String {
    let mut text = String::new();
    for info in states {
        let _ = writeln!(text, "{} / {}: {}", info.operator, info.state, info.kind);
        let parts = [("key", &info.key), ("user key", &info.user_key), ("value", &Some(info.value.clone()))];
        for (part, schema) in parts {
            match schema {
                Some(Schema::Struct(fields)) => {
                    let _ = writeln!(text, "  {part}");
                    for (name, field) in fields {
                        let _ = writeln!(text, "    {name}: {}", inline(field));
                    }
                }
                Some(other) => {
                    let _ = writeln!(text, "  {part}: {}", inline(other));
                }
                None => {}
            }
        }
    }
    text
}
