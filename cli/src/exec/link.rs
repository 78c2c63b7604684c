//! Link between wrapper and guardian: a socket that carries messages of nine bytes, and once a file.
//!
//! The guardian gets it as its standard input, because no safe call turns the number of an inherited file into a file. The standard
//! input of the command comes over the link.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of a message: what it is, and a number.
const LENGTH: usize = 9;

/// What wrapper and guardian say to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Wrapper: the lock is held until this moment, in nanoseconds of the boot clock.
    Until(u64),
    /// Wrapper: this signal is for the command.
    Signal(u64),
    /// Wrapper: the lock is renewed no more, and the command has to end within this time, in nanoseconds. It is zero once the lock is
    /// lost; an operator who asks for the lock gets it after the command's end.
    Within(u64),
    /// Guardian: the command was not started, because the lock was lost before, or about to be.
    TooLate,
    /// Guardian: nothing of the command is left; its exit status.
    Ended(u64),
}

impl Message {
    fn bytes(self) -> [u8; LENGTH] {
        let (kind, number) = match self {
            Self::Until(nanos) => (b'u', nanos),
            Self::Signal(signal) => (b's', signal),
            Self::Within(nanos) => (b'w', nanos),
            Self::TooLate => (b't', 0),
            Self::Ended(status) => (b'e', status),
        };
        let mut bytes = [kind; LENGTH];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn parse([kind, number @ ..]: [u8; LENGTH]) -> Option<Self> {
        let number = u64::from_le_bytes(number);
        let of_kind = [
            Self::Until(number),
            Self::Signal(number),
            Self::Within(number),
            Self::TooLate,
            Self::Ended(number),
        ];
        of_kind.into_iter().find(|it| it.bytes()[0] == kind)
    }
}

/// Reads a message. `Err`: there is none on a link that does not block (`WouldBlock`), or the other process has gone.
pub(super) fn receive(mut link: &UnixStream) -> io::Result<Message> {
    let mut bytes = [0; LENGTH];
    // Each is written at once, so none is there in part.
    link.read_exact(&mut bytes)?;
    Message::parse(bytes).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Writes a message to a link that does not block. It fails if the other process has gone, which the next read shows, and if that
/// process has left too much unread.
///
/// Linux puts so short a message into a single buffer of the socket, or refuses all of it: so no part of one is written. `receive`
/// would take a part for the end of the wrapper, and the guardian would end the command.
pub(super) fn send(mut link: &UnixStream, message: Message) {
    let _ = link.write_all(&message.bytes());
}

pub(super) fn send_file(link: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut files = SendAncillaryBuffer::new(&mut space);
    let all = [file];
    files.push(SendAncillaryMessage::ScmRights(&all));
    sendmsg(link.as_fd(), &[IoSlice::new(b"f")], &mut files, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a file from the link. The command inherits it only where it is said to.
pub(super) fn receive_file(link: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut files = RecvAncillaryBuffer::new(&mut space);
    recvmsg(link.as_fd(), &mut [IoSliceMut::new(&mut [0])], &mut files, RecvFlags::CMSG_CLOEXEC)?;
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
