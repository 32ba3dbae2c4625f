//! The channel of gatelog's callback to the executor: a socket beside the playbook's output.
//!
//! Messages keep their order whoever sends them, and the kernel says which process sent each. The processes of a playbook
//! that run Ansible hold it, and what they start does not: a command of a job cannot write there. See
//! [`crate::lines`] for what is said.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// The longest message in bytes; of a longer one the rest is lost. The callback sends half of it at most.
const LONGEST: usize = 64 << 10;

/// The executor's end.
pub(crate) struct Channel {
    /// It has messages as a datagram socket has, and unlike it an end; tokio knows no such kind.
    socket: UnixDatagram,
    message: Vec<u8>,
}

/// A message and who sent it.
pub(crate) struct Message<'a> {
    /// The process, by this host's numbers. `None`: the kernel does not say.
    pub(crate) from: Option<i32>,
    pub(crate) bytes: &'a [u8],
}

impl Channel {
    /// Both ends of a new channel. Only in the async runtime.
    pub(crate) fn open() -> io::Result<(Channel, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Before anything is sent: what was sent earlier has no sender.
        set_socket_passcred(&ours, true)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let socket = UnixDatagram::from_std(ours.into())?;
        Ok((Channel { socket, message: vec![0; LONGEST] }, theirs))
    }

    /// The next message. `None`: nobody holds the other end any more. Nothing is lost where this is dropped while it waits.
    pub(crate) async fn hear(&mut self) -> io::Result<Option<Message<'_>>> {
        let (socket, message) = (&self.socket, &mut self.message);
        let (length, from) = socket.async_io(Interest::READABLE, || receive(socket.as_fd(), message)).await?;
        // The end has no sender; an empty message has one.
        let is_end = length == 0 && from.is_none();
        Ok((!is_end).then(|| Message { from, bytes: self.message.get(..length).unwrap_or_default() }))
    }
}

/// One message: its length and its sender.
fn receive(socket: BorrowedFd, message: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(message)];
    let received = recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC)?;
    let sender = |message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid.as_raw_nonzero().get()),
        _ => None,
    };
    Ok((received.bytes, ancillary.drain().find_map(sender)))
}

/// Sends bytes over a socket, with descriptors that the first of them brings along.
pub(crate) fn send_with(socket: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let sent = sendmsg(socket, &[io::IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent != bytes.len() {
        return Err(io::Error::other("a message was sent in part"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn each_message_has_its_sender_and_an_empty_one_is_no_end() {
        let (mut channel, theirs) = Channel::open().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        rustix::io::write(&theirs, b"sfirst").unwrap();
        let heard = channel.hear().await.unwrap().unwrap();
        assert_eq!((heard.from, heard.bytes), (Some(own), &b"sfirst"[..]));
        // A process that was given the other end as its standard output.
        let mut child = {
            let output = Stdio::from(theirs.try_clone().unwrap());
            Command::new("/bin/sh").args(["-c", "printf second"]).stdout(output).spawn().unwrap()
        };
        let pid = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        let heard = channel.hear().await.unwrap().unwrap();
        assert_eq!((heard.from, heard.bytes), (Some(pid), &b"second"[..]));
        sendmsg(&theirs, &[io::IoSlice::new(b"")], &mut SendAncillaryBuffer::new(&mut []), SendFlags::empty()).unwrap();
        rustix::io::write(&theirs, b"slast").unwrap();
        drop(theirs);
        let heard = channel.hear().await.unwrap().unwrap();
        assert_eq!((heard.from, heard.bytes), (Some(own), &b""[..]));
        assert_eq!(channel.hear().await.unwrap().unwrap().bytes, b"slast");
        assert!(channel.hear().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_or_brings_descriptors_along_harms_nobody() {
        let (mut channel, theirs) = Channel::open().unwrap();
        rustix::io::write(&theirs, &vec![b'x'; LONGEST + 10_000]).unwrap();
        assert_eq!(channel.hear().await.unwrap().unwrap().bytes.len(), LONGEST);
        let stream = UnixStream::from(theirs);
        let (mut reader, writer) = io::pipe().unwrap();
        send_with(&stream, b"pgift", &[writer.as_fd(), writer.as_fd()]).unwrap();
        drop(writer);
        let heard = channel.hear().await.unwrap().unwrap();
        assert_eq!((heard.bytes, heard.from), (&b"pgift"[..], i32::try_from(std::process::id()).ok()));
        // Nobody holds it: what was sent along is gone.
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    }
}
