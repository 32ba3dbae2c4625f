//! Talks to others.

use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

pub fn talks() -> std::io::Result<()> {
    "localhost:1".to_socket_addrs()?;
    TcpStream::connect("localhost:1")?;
    TcpListener::bind("localhost:1")?;
    UdpSocket::bind("localhost:1")?;
    UnixStream::connect("socket")?;
    UnixListener::bind("socket")?;
    Ok(())
}

pub fn holds(_socket: &UnixDatagram) {}
