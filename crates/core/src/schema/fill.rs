//! What made-up values are made of: for types, when they are traced, and for stored schemas, when they are tried.

/// The content of primitives; types that check their content are tried with one after the other.
pub(super) struct Fill {
    pub(super) number: u8,
    pub(super) text: &'static str,
    pub(super) bytes: &'static [u8],
}

/// In the order in which they are tried.
pub(super) const FILLS: &[Fill] = &[
    Fill { number: 0, text: "", bytes: &[] },
    Fill { number: 1, text: "1", bytes: &[0; 16] },
    Fill { number: 1, text: "1970-01-01T00:00:00Z", bytes: &[0; 32] },
    Fill { number: 1, text: "1970-01-01", bytes: &[0; 8] },
];
