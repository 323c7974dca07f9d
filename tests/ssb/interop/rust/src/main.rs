//! A second opinion on the secret handshake and the box stream: kuska-handshake sends back
//! whatever it is sent.
//!
//!     echo NETWORK SEED COUNT          accepts one connection, on a port that it tells
//!     echo NETWORK SEED COUNT PORT KEY dials the peer with that public key
//!
//! Network key, seed and public key are hexadecimal. It says goodbye after COUNT bytes, or, if
//! that is 0, when the other side has. On stdout it tells "listening PORT", "peer KEY", "goodbye"
//! and, instead of the latter two, "refused".

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use kuska_handshake::sync::{handshake_client, handshake_server, BoxStream};
use kuska_sodiumoxide::crypto::{auth, sign::ed25519};

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn accepted() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("listening {}", listener.local_addr().expect("an address").port());
    listener.accept().expect("a connection").0
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let network = auth::Key::from_slice(&bytes(&args[1])).expect("a network key");
    let seed = ed25519::Seed::from_slice(&bytes(&args[2])).expect("a seed");
    let (ours, secret) = ed25519::keypair_from_seed(&seed);
    let count: usize = args[3].parse().expect("a count");
    let (stream, outcome) = if args.len() > 4 {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", args[4])).expect("a peer");
        let server = ed25519::PublicKey::from_slice(&bytes(&args[5])).expect("a public key");
        let outcome = handshake_client(&mut stream, network, ours, secret, server);
        (stream, outcome)
    } else {
        let mut stream = accepted();
        let outcome = handshake_server(&mut stream, network, ours, secret);
        (stream, outcome)
    };
    let Ok(handshake) = outcome else {
        println!("refused");
        return;
    };
    let peer: Vec<String> = handshake.peer_pk.0.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("peer {}", peer.concat());
    let (mut reader, mut writer) =
        BoxStream::from_handshake(&stream, &stream, handshake).split_read_write();
    let mut buffer = [0; 1 << 16]; // a smaller one than a packet makes the reader panic
    let mut done = 0;
    while count == 0 || done < count {
        let size = reader.read(&mut buffer).expect("a packet");
        if size == 0 {
            break; // a goodbye
        }
        writer.write_all(&buffer[..size]).expect("somebody who reads");
        done += size;
    }
    writer.goodbye().expect("somebody who reads");
    println!("goodbye");
}
