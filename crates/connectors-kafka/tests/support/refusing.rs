//! A broker that speaks just enough to refuse credentials: the real one here accepts all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const METADATA: i16 = 3;
const SASL_HANDSHAKE: i16 = 17;
const API_VERSIONS: i16 = 18;
const SASL_AUTHENTICATE: i16 = 36;
const UNSUPPORTED_VERSION: i16 = 35;
const SASL_AUTHENTICATION_FAILED: i16 = 58;

/// Its address. It lives as long as the process.
pub(crate) fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever is refused hangs up.
            std::thread::spawn(move || while answer(&stream).is_ok() {});
        }
    });
    servers
}

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut request = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut request)?;
    let number = |at: usize| i16::from_be_bytes([request[at], request[at + 1]]);
    let mut response = request[4..8].to_vec();
    response.extend(match number(0) {
        API_VERSIONS => versions(if number(2) > 0 { UNSUPPORTED_VERSION } else { 0 }),
        SASL_HANDSHAKE => [&0i16.to_be_bytes()[..], &1i32.to_be_bytes(), &text("PLAIN")].concat(),
        SASL_AUTHENTICATE => {
            [&SASL_AUTHENTICATION_FAILED.to_be_bytes()[..], &text("no such user"), &0i32.to_be_bytes()].concat()
        }
        other => panic!("request {other} before the credentials are accepted"),
    });
    stream.write_all(&(response.len() as u32).to_be_bytes())?;
    stream.write_all(&response)
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as i16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// Which requests it knows, in the first form of that answer.
fn versions(error: i16) -> Vec<u8> {
    let known = [(API_VERSIONS, 0), (SASL_HANDSHAKE, 1), (SASL_AUTHENTICATE, 0), (METADATA, 4)];
    let mut body = [&error.to_be_bytes()[..], &(known.len() as i32).to_be_bytes()].concat();
    for (key, newest) in known {
        for number in [key, 0, newest] {
            body.extend_from_slice(&i16::to_be_bytes(number));
        }
    }
    body
}
