//! Link between wrapper and guardian: a socket that keeps messages whole, and transfers one file.
//!
//! The guardian inherits it as its standard input, because no safe call turns an inherited descriptor into a file. The link transfers
//! the standard input of the command.

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

/// Largest size of a message, in bytes.
const LENGTH: usize = 64;

/// Message between wrapper and guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// Wrapper: the lock is held until this moment, in nanoseconds of the boot clock.
    Until(u64),
    /// Wrapper: pass this signal on to the command.
    Signal(i32),
    /// Wrapper: the lock is no longer renewed, and the command must end within this time, in nanoseconds. It is zero once the lock is
    /// lost. An operator who takes the lock away gets it after the command's end.
    Within(u64),
    /// Guardian: the command was not started, because the lock was already lost, or about to be.
    TooLate,
    /// Guardian: no process of the command is left. The exit status.
    Ended(u8),
}

/// Makes both ends of a link.
pub(super) fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let flags = SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((one.into(), other.into()))
}

/// Reads a message. Fails if a link that does not block has none (`WouldBlock`), or if the other process has gone.
pub(super) fn receive(link: impl AsFd) -> io::Result<Message> {
    let mut bytes = [0; LENGTH];
    let length = retry_on_intr(|| read(&link, &mut bytes))?;
    Ok(serde_json::from_slice(&bytes[..length])?)
}

/// Writes a message to a link that does not block. Drops it if the other process has gone, which the next read shows, or if that
/// process has too many unread messages.
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

/// Waits for a file from the link. It is close-on-exec, so the command inherits it only if it is passed explicitly.
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

/// Returns the time in nanoseconds of the boot clock, in which the library gives the end of a lock.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |it: i64| u64::try_from(it).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
