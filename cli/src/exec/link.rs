//! Link between wrapper and guardian: a socket that keeps messages whole, and carries a file once.
//!
//! The guardian gets it as its standard input, because no safe call turns the number of an inherited file into a file. The standard
//! input of the command comes over the link.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::io::{read, retry_on_intr, write};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Bytes of a message at most.
const LENGTH: usize = 64;

/// What wrapper and guardian say to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// Wrapper: the lock is held until this moment, in nanoseconds of the boot clock.
    Until(u64),
    /// Wrapper: this signal is for the command.
    Signal(i32),
    /// Wrapper: the lock is renewed no more, and the command has to end within this time, in nanoseconds. It is zero once the lock is
    /// lost; an operator who asks for the lock gets it after the command's end.
    Within(u64),
    /// Guardian: the command was not started, because the lock was lost before, or about to be.
    TooLate,
    /// Guardian: nothing of the command is left; its exit status.
    Ended(u8),
}

/// Makes both ends of a link.
pub(super) fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let flags = SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((one.into(), other.into()))
}

/// Reads a message. `Err`: there is none on a link that does not block (`WouldBlock`), or the other process has gone.
pub(super) fn receive(link: impl AsFd) -> io::Result<Message> {
    let mut bytes = [0; LENGTH];
    let length = retry_on_intr(|| read(&link, &mut bytes))?;
    Ok(serde_json::from_slice(&bytes[..length])?)
}

/// Writes a message to a link that does not block. It fails if the other process has gone, which the next read shows, and if that
/// process has left too much unread.
pub(super) fn send(link: impl AsFd, message: Message) {
    let _ = serde_json::to_vec(&message).map(|bytes| write(link, &bytes));
}

pub(super) fn send_file(link: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut files = SendAncillaryBuffer::new(&mut space);
    let all = [file];
    files.push(SendAncillaryMessage::ScmRights(&all));
    sendmsg(link, &[IoSlice::new(b"f")], &mut files, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a file from the link. The command inherits it only where it is said to.
pub(super) fn receive_file(link: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut files = RecvAncillaryBuffer::new(&mut space);
    recvmsg(link, &mut [IoSliceMut::new(&mut [0])], &mut files, RecvFlags::CMSG_CLOEXEC)?;
    let received = files.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    received.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

/// Now, in nanoseconds of the boot clock, by which the library tells until when a lock is held.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |it: i64| u64::try_from(it).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
