//! A node of aquadoggo: `node FOLDER tcp|quic PORT HTTP_PORT`, until its input ends.
//!
//! `relay_mode` makes the node speak the identify protocol, which keeps connections from being
//! closed as idle as soon as they are open.

#![allow(deprecated)] // all of aquadoggo is

use std::path::Path;
use std::process::exit;

use anyhow::{bail, Result};
use aquadoggo::{AllowList, Configuration, NetworkConfiguration, Node, Transport};
use p2panda_rs::identity::KeyPair;
use tokio::io::{copy, sink, stdin};

#[tokio::main]
async fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [folder, transport, port, http_port] = given.as_slice() else {
        bail!("node FOLDER tcp|quic PORT HTTP_PORT");
    };
    let folder = Path::new(folder);
    let configuration = Configuration {
        allow_schema_ids: AllowList::Wildcard,
        database_url: format!("sqlite:{}", folder.join("node.sqlite").display()),
        http_port: http_port.parse()?,
        blobs_base_path: folder.join("blobs"),
        network: NetworkConfiguration {
            transport: match transport.as_str() {
                "tcp" => Transport::TCP,
                _ => Transport::QUIC,
            },
            port: port.parse()?,
            mdns: false,
            relay_mode: true,
            ..Default::default()
        },
        ..Default::default()
    };
    let node = Node::start(KeyPair::new(), configuration).await;
    let (mut told, mut ignored) = (stdin(), sink());
    tokio::select! {
        _ = node.on_exit() => exit(1),
        _ = copy(&mut told, &mut ignored) => exit(0),
    }
}
