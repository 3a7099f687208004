//! What bytes cost on their way from one process to another on this machine, with nothing else around: what no protocol,
//! journal or framing can go below. Processor time of both ends, by TCP, by TLS as parties speak it, and with the digest that the
//! receiver takes.
//!
//!   cargo run --release -p secsv-node --example loopback -- [MEGABYTES [TIMES]]

use std::{
    error::Error,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, Issuer, KeyPair};
use rustix::time::{ClockId, clock_gettime};
use rustls::{
    ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use secsv_evaluation::packet::CHUNK;
use secsv_node::transport::{client_config, server_config};

type Failure = Box<dyn Error + Send + Sync>;

/// Bytes of a message: about those of one client's encrypted models of BANK.
const MESSAGE: usize = 8 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Tcp,
    Tls,
    TlsAndDigest,
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let megabytes = arguments.next().transpose()?.unwrap_or(122);
    let times = arguments.next().transpose()?.unwrap_or(5).max(1);
    let messages = (megabytes * 1_000_000).div_ceil(MESSAGE);
    println!(
        "{:.0} MB over loopback, fastest of {times}; processor time of both ends:",
        (messages * MESSAGE) as f64 / 1e6
    );
    for (name, way) in [("TCP", Way::Tcp), ("TLS", Way::Tls), ("TLS and digest", Way::TlsAndDigest)] {
        let runs = (0..times).map(|_| run(way, messages)).collect::<Result<Vec<_>, _>>()?;
        let (processor, wall) = runs.into_iter().min().ok_or("no run")?;
        println!("{name:>14}: {:.3} s ({:.3} s wall)", processor.as_secs_f64(), wall.as_secs_f64());
    }
    Ok(())
}

/// Processor and wall time of one transfer.
fn run(way: Way, messages: usize) -> Result<(Duration, Duration), Failure> {
    let (server, client) = configurations()?;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let ready = Arc::new(Barrier::new(2));
    let receiver = {
        let ready = ready.clone();
        thread::spawn(move || -> Result<(), Failure> {
            let (mut tcp, _) = listener.accept()?;
            tcp.set_nodelay(true)?;
            if way == Way::Tcp {
                return receive(&mut tcp, way, messages, &ready);
            }
            let mut tls = StreamOwned::new(ServerConnection::new(server)?, tcp);
            tls.conn.complete_io(&mut tls.sock)?;
            receive(&mut tls, way, messages, &ready)
        })
    };
    let mut tcp = TcpStream::connect(address)?;
    tcp.set_nodelay(true)?;
    let spent = if way == Way::Tcp {
        send(&mut tcp, messages, &ready)
    } else {
        let mut tls = StreamOwned::new(ClientConnection::new(client, "localhost".try_into()?)?, tcp);
        tls.conn.complete_io(&mut tls.sock)?;
        send(&mut tls, messages, &ready)
    };
    let (processor, begun) = spent?;
    receiver.join().map_err(|_| "the receiver panicked")??;
    Ok((processor_time() - processor, begun.elapsed()))
}

/// Returns the clocks as they stood before the first byte.
fn send(to: &mut impl Write, messages: usize, ready: &Barrier) -> Result<(Duration, Instant), Failure> {
    let content = vec![0x5a; MESSAGE];
    ready.wait();
    let before = (processor_time(), Instant::now());
    for _ in 0..messages {
        content.chunks(CHUNK).try_for_each(|chunk| to.write_all(chunk))?;
    }
    to.flush()?;
    Ok(before)
}

fn receive(from: &mut impl Read, way: Way, messages: usize, ready: &Barrier) -> Result<(), Failure> {
    let mut content = vec![0; MESSAGE];
    ready.wait();
    for _ in 0..messages {
        let mut hasher = blake3::Hasher::new();
        for chunk in content.chunks_mut(CHUNK) {
            from.read_exact(chunk)?;
            if way == Way::TlsAndDigest {
                hasher.update(chunk);
            }
        }
        std::hint::black_box(hasher.finalize());
    }
    Ok(())
}

/// Two parties of one authority.
fn configurations() -> Result<(Arc<ServerConfig>, Arc<ClientConfig>), Failure> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.is_ca = rcgen::IsCa::Ca(BasicConstraints::Constrained(0));
    let authority = parameters.self_signed(&key)?.der().clone();
    let issuer = Issuer::new(parameters, key);
    let party = || -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), Failure> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &issuer)?;
        Ok((certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der())?))
    };
    let (server, client) = (party()?, party()?);
    let server = server_config(authority.clone(), server.0, server.1)?;
    let client = client_config(authority, client.0, client.1)?;
    Ok((Arc::new(server), Arc::new(client)))
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
