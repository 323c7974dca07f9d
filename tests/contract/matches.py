"""For each machine a ``match`` over its events, and one over its effects, that has every case.

This is never run: mypy and pyright check it.  A missing case is an error at `assert_never`;
`forgets_a_case` has one, with a comment that allows it, and mypy would report the comment if it
were not needed.
"""

# pyright: reportUnnecessaryComparison=false
# In strict mode it says of each `rest` that it is never matched, as it should be.

from __future__ import annotations

from typing import assert_never

from culm import bymux, garlic, oxen, p2panda, point2point, reconcile, ssb
from culm.bamboo import effects as logs
from culm.garlic import handshake, raft
from culm.machine import Closed, DataReceived, StoreFailed
from culm.p2panda import effects as operations
from culm.point2point import replication
from culm.signatures import Verify
from culm.ssb import ebt, muxrpc, peer


def forgets_a_case(machine: reconcile.CompactSession) -> None:
    match machine.next_event():
        case reconcile.ItemsReceived() | reconcile.CheckFailed() | Closed() | None:
            pass
        case rest:
            assert_never(rest)  # type: ignore[arg-type]


def match_bymux(machine: bymux.Connection) -> None:
    match machine.next_event():
        case bymux.StreamCreated() | bymux.StreamData() | bymux.StreamEnded():
            pass
        case bymux.StreamCredit() | bymux.CreationCredit():
            pass
        case bymux.PingReceived() | bymux.PongReceived():
            pass
        case bymux.CloseReceived() | bymux.StopReadReceived():
            pass
        case Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_point2point(machine: point2point.Connection) -> None:
    match machine.next_event():
        case point2point.Established() | point2point.CreditReceived() | point2point.Proposed():
            pass
        case point2point.ProposalDropped() | point2point.Confirmed() | point2point.Adjusted():
            pass
        case point2point.Cancelled() | point2point.RequestEnded() | point2point.RequestGivenUp():
            pass
        case point2point.IdFreed():
            pass
        case point2point.Notified() | point2point.PayloadSkipped() | point2point.ForkSuspected():
            pass
        case point2point.MetadataReceived() | point2point.EntriesReceived():
            pass
        case point2point.PayloadReceived() | point2point.Apologized():
            pass
        case point2point.HashWanted() | point2point.EntryWanted():
            pass
        case Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_replication(machine: replication.Replicator) -> None:
    match machine.next_event():
        case replication.LogOffered() | replication.LogSynced() | replication.LogEnded():
            pass
        case replication.EntryStored() | replication.PayloadProgress():
            pass
        case replication.PiecesNotified() | replication.ForkFound() | replication.LogRefused():
            pass
        case replication.Settled() | StoreFailed() | Closed() | None:
            pass
        case rest:
            assert_never(rest)
    match_log_effect(machine.next_effect())


def match_log_effect(effect: replication.ReplicatorEffect | None) -> None:
    match effect:
        case logs.ReadLogs() | logs.ReadLog():
            pass
        case logs.ReadEntry() | logs.ReadEntries() | logs.ReadHashes():
            pass
        case logs.ReadPayload() | logs.AddFork() | logs.AppendEntries():
            pass
        case logs.WritePayload() | logs.FinishPayload():
            pass
        case logs.DiscardStaged() | Verify() | None:
            pass
        case rest:
            assert_never(rest)


def match_oxen(machine: oxen.Node) -> None:
    match machine.next_event():
        case oxen.MessageReceived() | oxen.Delivered() | oxen.SendFailed() | oxen.Writable():
            pass
        case oxen.SendWaiting() | oxen.SendResumed():
            pass
        case oxen.PeerJoined() | oxen.PeerLeft() | oxen.TagsChanged():
            pass
        case oxen.PeerReachable() | oxen.PeerUnreachable() | oxen.PeerForgotten():
            pass
        case Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_garlic_handshakes(
    machine: handshake.ClientHandshake | handshake.ServerHandshake,
) -> None:
    match machine.next_event():
        case garlic.Authenticated() | garlic.Challenged() | Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_garlic_connection(machine: garlic.Connection) -> None:
    match machine.next_event():
        case garlic.RequestReceived() | garlic.ResponseReceived() | Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_garlic_node(machine: garlic.Node) -> None:
    match machine.next_event():
        case garlic.DialWanted() | garlic.LinkClosed() | None:
            pass
        case event:
            match_raft_event(event)
    match_raft_effect(machine.next_effect())


def match_raft(machine: raft.Raft) -> None:
    match_raft_event(machine.next_event())
    match_raft_effect(machine.next_effect())


def match_raft_event(event: raft.RaftEvent | None) -> None:
    match event:
        case raft.RoleChanged() | raft.LeaderChanged():
            pass
        case raft.ConfigurationChanged() | raft.ChangeFailed() | raft.PeerFault():
            pass
        case raft.LeadershipTransferred() | raft.TransferFailed():
            pass
        case raft.Forwarded() | raft.ForwardFailed():
            pass
        case raft.Committed() | raft.Lost() | raft.ReadReady() | raft.ReadFailed():
            pass
        case raft.SnapshotInstalled() | raft.Left():
            pass
        case StoreFailed() | Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_raft_effect(effect: raft.RaftEffect | None) -> None:
    match effect:
        case raft.Persist() | raft.Apply() | raft.Compact():
            pass
        case raft.TakeSnapshot() | raft.ReadSnapshot() | raft.WriteSnapshot() | None:
            pass
        case rest:
            assert_never(rest)


def match_ssb_handshakes(machine: ssb.ClientHandshake | ssb.ServerHandshake) -> None:
    match machine.next_event():
        case ssb.Authenticated() | Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_box_stream(machine: ssb.BoxStream) -> None:
    match machine.next_event():
        case DataReceived() | Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_muxrpc(machine: muxrpc.Connection) -> None:
    match machine.next_event():
        case muxrpc.CallReceived() | muxrpc.CallEnded():
            pass
        case muxrpc.ReplyReceived() | muxrpc.ValueReceived():
            pass
        case Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_ebt(machine: ebt.Replicator) -> None:
    match_ebt_event(machine.next_event())
    match_ebt_effect(machine.next_effect())


def match_peer(machine: peer.Peer) -> None:
    match machine.next_event():
        case peer.PeerConnected() | peer.PeerDisconnected() | peer.FellBack():
            pass
        case peer.OwnFeedConfirmed() | None:
            pass
        case event:
            match_ebt_event(event)
    match_ebt_effect(machine.next_effect())


def match_ebt_event(event: ebt.ReplicatorEvent | None) -> None:
    match event:
        case ebt.SessionOpened() | ebt.SessionSynced() | ebt.SessionEnded():
            pass
        case ebt.SourceChanged() | ebt.FeedsLeftOut():
            pass
        case ebt.FeedExtended() | ebt.FeedForked() | ebt.MessageRefused():
            pass
        case StoreFailed() | Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_ebt_effect(effect: ebt.ReplicatorEffect | None) -> None:
    match effect:
        case ebt.AppendMessages() | ebt.ReadMessages() | ebt.MarkForked():
            pass
        case ebt.LoadClock() | ebt.SaveClock() | Verify() | None:
            pass
        case rest:
            assert_never(rest)


def match_p2panda_connection(machine: p2panda.Connection) -> None:
    match machine.next_event():
        case p2panda.Announced() | p2panda.AnnouncementIgnored() | p2panda.MessageIgnored():
            pass
        case p2panda.SessionRequested() | p2panda.SessionLive() | p2panda.SessionEnded():
            pass
        case p2panda.RequestIgnored() | p2panda.RequestDropped() | p2panda.RequestRenumbered():
            pass
        case p2panda.HaveReceived() | p2panda.RangeReceived():
            pass
        case p2panda.EntryReceived() | p2panda.EntriesReceived() | p2panda.DoneReceived():
            pass
        case Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_p2panda_replicator(machine: p2panda.Replicator) -> None:
    match machine.next_event():
        case p2panda.Announced() | p2panda.AnnouncementIgnored() | p2panda.MessageIgnored():
            pass
        case p2panda.SessionRequested() | p2panda.SessionLive() | p2panda.SessionEnded():
            pass
        case p2panda.RequestIgnored() | p2panda.RequestDropped() | p2panda.RequestRenumbered():
            pass
        case p2panda.OperationStored() | p2panda.OperationLeftOut() | p2panda.RequestedAgain():
            pass
        case StoreFailed() | Closed() | None:
            pass
        case rest:
            assert_never(rest)
    match_operation_effect(machine.next_effect())


def match_operation_effect(effect: p2panda.ReplicatorEffect | None) -> None:
    match effect:
        case operations.OpenRange() | operations.LookUp() | operations.FindDocuments():
            pass
        case operations.AppendOperations() | operations.LocateOperations():
            pass
        case operations.ReadOperations() | operations.ReadNew() | Verify():
            pass
        case None:
            pass
        case rest:
            assert_never(rest)


def match_session(machine: reconcile.Session) -> None:
    match machine.next_event():
        case reconcile.ItemReceived() | Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_plain_session(machine: reconcile.PlainSession | reconcile.PlainResponder) -> None:
    match machine.next_event():
        case reconcile.ItemReceived() | Closed() | None:
            pass
        case rest:
            assert_never(rest)


def match_compact_session(machine: reconcile.CompactSession) -> None:
    match machine.next_event():
        case reconcile.ItemsReceived() | reconcile.CheckFailed():
            pass
        case reconcile.Reconciled() | reconcile.SumsEqual() | Closed() | None:
            pass
        case rest:
            assert_never(rest)
