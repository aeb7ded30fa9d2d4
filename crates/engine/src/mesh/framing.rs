//! Where messages begin and end in timely's stream. Pure.

/// Bytes of the header before each message: six big-endian numbers.
const HEADER_BYTES: usize = 48;
/// Which of them is the number of bytes after the header; 0 for the end of the stream.
const LENGTH: std::ops::Range<usize> = 32..40;

/// Follows a stream as it is read.
#[derive(Debug)]
pub(crate) struct Framing {
    header: [u8; HEADER_BYTES],
    filled: usize,
    payload_left: usize,
    ended: bool,
}

impl Framing {
    pub(crate) fn new() -> Self {
        Framing { header: [0; HEADER_BYTES], filled: 0, payload_left: 0, ended: false }
    }

    /// Takes note of the next bytes of the stream.
    pub(crate) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.ended {
            if self.payload_left > 0 {
                let taken = self.payload_left.min(bytes.len());
                self.payload_left -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            let taken = (HEADER_BYTES - self.filled).min(bytes.len());
            self.header[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEADER_BYTES {
                self.filled = 0;
                let length: [u8; 8] = self.header[LENGTH].try_into().expect("the range has 8 bytes");
                self.payload_left = usize::try_from(u64::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.ended = self.payload_left == 0;
            }
        }
    }

    /// Whether the sender has said that nothing follows.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// How many bytes are missing until the next border: of a message, or of a header.
    pub(crate) fn missing(&self) -> usize {
        match self.payload_left {
            0 => HEADER_BYTES - self.filled,
            left => left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &[u8]) -> Vec<u8> {
        let fields = [7, 1, 2, 3, payload.len() as u64, 0];
        let mut bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_be_bytes()).collect();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn a_stream_cut_anywhere_comes_to_an_end_with_zeros() {
        let mut stream = message(&[1; 300]);
        stream.extend(message(&[2; 5]));
        for cut in 0..stream.len() {
            for step in [1, 7, 1_000] {
                let mut framing = Framing::new();
                stream[..cut].chunks(step).for_each(|chunk| framing.follow(chunk));
                assert!(!framing.has_ended());
                let mut rounds = 0;
                while !framing.has_ended() {
                    framing.follow(&vec![0; framing.missing()]);
                    rounds += 1;
                }
                assert!(rounds <= 3, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_header_without_payload_is_the_end() {
        let mut framing = Framing::new();
        framing.follow(&message(&[9; 10]));
        assert!(!framing.has_ended());
        framing.follow(&message(&[]));
        assert!(framing.has_ended());
    }
}
