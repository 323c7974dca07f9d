//! A plain TCP connection in place of libp2p: `bridge ADDRESS`, a multiaddress of a node.
//!
//! Says in a line of JSON which port waits for a connection, and who both peers are.  What comes
//! on that connection goes to the node on a substream of ours; what the node says comes on one
//! that it opens itself.  Ends when either of both ends.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{identify, identity::Keypair, noise, tcp, yamux, Multiaddr, StreamProtocol};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::compat::FuturesAsyncReadCompatExt;

const PROTOCOL: StreamProtocol = StreamProtocol::new("/p2p/p2panda/1.0.0");

#[derive(NetworkBehaviour)]
struct Behaviour {
    identify: identify::Behaviour,
    stream: libp2p_stream::Behaviour,
}

#[tokio::main]
async fn main() -> Result<()> {
    let address: Multiaddr = std::env::args().nth(1).context("bridge ADDRESS")?.parse()?;
    let mut swarm = libp2p::SwarmBuilder::with_existing_identity(Keypair::generate_ed25519())
        .with_tokio()
        .with_tcp(
            tcp::Config::default().nodelay(true),
            noise::Config::new,
            yamux::Config::default,
        )?
        .with_quic()
        .with_behaviour(|key| Behaviour {
            identify: identify::Behaviour::new(identify::Config::new(
                "bridge/1".into(),
                key.public(),
            )),
            stream: libp2p_stream::Behaviour::new(),
        })?
        .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(3600)))
        .build();
    let mut control = swarm.behaviour().stream.new_control();
    let mut opened = control.accept(PROTOCOL)?;
    let local = *swarm.local_peer_id();
    swarm.dial(address)?;
    let remote = loop {
        match swarm.select_next_some().await {
            SwarmEvent::ConnectionEstablished { peer_id, .. } => break peer_id,
            SwarmEvent::OutgoingConnectionError { error, .. } => return Err(error.into()),
            _ => {}
        }
    };
    tokio::spawn(async move {
        loop {
            swarm.select_next_some().await;
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (ours, theirs) = (
        hex::encode(local.to_bytes()),
        hex::encode(remote.to_bytes()),
    );
    println!(
        "{}",
        json!({"port": listener.local_addr()?.port(), "local": ours, "remote": theirs})
    );
    let (mut from_client, mut to_client) = listener.accept().await?.0.into_split();
    let mut to_node = control.open_stream(remote, PROTOCOL).await?.compat();
    let (_, from_node) = opened.next().await.context("no substream of the node's")?;
    let mut from_node = from_node.compat();
    tokio::select! {
        ended = tokio::io::copy(&mut from_client, &mut to_node) => ended?,
        ended = tokio::io::copy(&mut from_node, &mut to_client) => ended?,
    };
    Ok(())
}
