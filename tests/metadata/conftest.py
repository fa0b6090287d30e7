"""Fixtures for metadata tests: random but replayable histories of records."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kraftlab.common.uuids import LOST, UNASSIGNED, Uuid
from kraftlab.metadata.features import bootstrap_records
from kraftlab.metadata.moves import PlannedPartition
from kraftlab.metadata.records import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    AbortTransaction,
    AccessControlEntry,
    AnyRecord,
    BeginTransaction,
    BrokerRegistrationChange,
    ChangeMoveThrottles,
    ClearElr,
    ClientQuota,
    Config,
    DequeueMoves,
    EndTransaction,
    Listener,
    MovePlan,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    QueueMoves,
    RegisterBroker,
    RegisterController,
    RemoveAccessControlEntry,
    RemovePlan,
    RemoveTopic,
    RemoveUserScramCredential,
    RequestOutcome,
    StartMoves,
    Topic,
    UnregisterBroker,
    UserScramCredential,
)

History = list[AnyRecord]


class HistoryWriter:
    """Writes records that fit the earlier ones. It remembers only names, ids, replica lists and broker epochs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.records: History = list(bootstrap_records())
        self.topics: dict[Uuid, str] = {}
        self.replicas: dict[tuple[Uuid, int], tuple[int, ...]] = {}
        self.epochs: dict[int, int] = {}
        self.producer_id = 0
        self.acls: dict[Uuid, tuple[str, int]] = {}
        self.credentials: set[tuple[str, int]] = set()
        self.moving: dict[tuple[Uuid, int], bool] = {}
        """Partitions being reassigned. True if a move has the reassignment's identity."""
        self.waiting: set[tuple[Uuid, int]] = set()
        self.plans: set[str] = set()
        self.sequences: dict[Uuid, int] = {}
        self.time_ms = 0

    def write(self, length: int) -> History:
        steps = [self.topic, self.partition, self.change, self.reassign, self.remove, self.config, self.broker, self.registration]
        steps += [self.clear_elr, self.acl, self.credential, self.start_or_queue, self.move_upkeep, self.plan, self.quota]
        steps += [self.outcome]
        weights = [3, 6, 12, 6, 1, 3, 2, 2, 1, 2, 1, 6, 3, 2, 2, 3]
        while len(self.records) < length:
            if self.random.random() < 0.03:
                self.aborted()
            elif self.random.random() < 0.05:
                self.records.append(BeginTransaction(0, "several at once"))
                for step in self.random.choices(steps, weights, k=self.random.randrange(5)):
                    step()
                self.records.append(EndTransaction(0))
            else:
                self.random.choices(steps, weights)[0]()
        return self.records

    def some(self) -> tuple[int, ...]:
        return tuple(self.random.sample(range(6), self.random.randint(1, 4)))

    def directory(self) -> Uuid:
        return self.random.choice([UNASSIGNED, LOST, (500).to_bytes(16, "big"), (501).to_bytes(16, "big")])

    def directories(self, replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
        return tuple(self.directory() for _ in replicas)

    def topic(self) -> None:
        name = self.random.choice("abcde") + self.random.choice("._") + self.random.choice("xyz")
        if name not in self.topics.values():
            topic_id = self.random.randbytes(16)
            self.topics[topic_id] = name
            self.records.append(Topic(0, name, topic_id))

    def partition(self) -> None:
        if self.topics:
            topic_id = self.random.choice(list(self.topics))
            number = self.random.randrange(6)
            if (topic_id, number) not in self.replicas:
                replicas = self.replicas[topic_id, number] = self.some()
                directories = self.directories(replicas) if self.random.random() < 0.7 else ()
                self.records.append(
                    Partition(0, number, topic_id, replicas, replicas[:2], leader=replicas[0], directories=directories)
                )

    def change(self) -> None:
        if self.replicas:
            topic_id, number = self.random.choice(list(self.replicas))
            replicas = self.replicas[topic_id, number]
            size = self.random.randint(0, 3)
            isr, elr = replicas[:size], self.random.choice([None, replicas[size:]])
            leader = self.random.choice([None, -1, isr[0] if isr else -1])
            known = self.random.choice([None, (), replicas[:1]])
            self.records.append(
                PartitionChange(0, number, topic_id, isr=isr, leader=leader, eligible_leader_replicas=elr, last_known_elr=known)
            )

    def clear_elr(self) -> None:
        self.records.append(ClearElr(0, self.random.choice(["", *self.topics.values()])))

    def reassign(self) -> None:
        if not self.replicas:
            return
        key = self.random.choice(list(self.replicas))
        topic_id, number = key
        original, target = self.replicas[key], self.some()
        adding = tuple(sorted(set(target) - set(original)))
        removing = tuple(sorted(set(original) - set(target)))
        moving = bool(adding or removing) and self.random.random() < 0.7
        replicas = self.replicas[key] = target + removing if moving else target
        if moving:
            self.moving.setdefault(key, False)
            if key in self.waiting:
                self.waiting.remove(key)
                self.records.append(DequeueMoves(0, (key,)))
        else:
            self.moving.pop(key, None)
        self.records.append(
            PartitionChange(
                0,
                number,
                topic_id,
                replicas=replicas,
                directories=self.directories(replicas),
                isr=replicas[:1],
                leader=replicas[0],
                adding_replicas=adding if moving else (),
                removing_replicas=removing if moving else (),
                original_replicas=original if moving else (),
                target_replicas=target if moving else (),
            )
        )

    def start_or_queue(self) -> None:
        """Write the identity of some running reassignments, and queue targets for some partitions that do not move."""
        offset, plan_id = len(self.records), self.random.choice([None, "p1", "p2"])
        throttle, until = self.random.choice([(None, None), (1000, None), (1000, 99), (2000, 99)])
        started = self.random.sample(sorted(self.moving), self.random.randint(0, len(self.moving)))
        if started:
            moves = tuple((*key, index) for index, key in enumerate(started))
            self.records.append(StartMoves(0, offset, "User:a", "why", 7, moves, plan_id, throttle, until))
            self.moving.update(dict.fromkeys(started, True))
        still = sorted(set(self.replicas) - set(self.moving))
        queued = self.random.sample(still, self.random.randint(0, len(still)))
        if queued:
            targets = [self.some() for _ in queued]
            dirs = [self.random.choice([(), self.directories(target)]) for target in targets]
            waits = tuple((*key, index, targets[index], dirs[index]) for index, key in enumerate(queued))
            priority = self.random.randrange(2)
            self.records.append(QueueMoves(0, offset, "User:b", "", 8, waits, plan_id, throttle, until, priority))
            self.waiting.update(queued)

    def move_upkeep(self) -> None:
        known = sorted(key for key, is_known in self.moving.items() if is_known)
        if known:
            until = self.random.choice([None, 55])
            self.records.append(ChangeMoveThrottles(0, tuple(known[:2]), self.random.choice([None, 5]), until))
        if self.waiting and self.random.random() < 0.5:
            key = self.random.choice(sorted(self.waiting))
            self.waiting.remove(key)
            self.records.append(DequeueMoves(0, (key,)))

    def plan(self) -> None:
        if self.plans and self.random.random() < 0.3:
            plan_id = self.random.choice(sorted(self.plans))
            self.plans.remove(plan_id)
            self.records.append(RemovePlan(0, plan_id))
        elif self.replicas:
            name = self.random.choice(["p1", "p2", "p3"])
            self.plans.add(name)
            some = self.random.sample(sorted(self.replicas), self.random.randint(1, min(3, len(self.replicas))))
            entries = tuple(
                PlannedPartition(*key, "t", self.replicas[key], self.directories(self.replicas[key]), self.some()) for key in some
            )
            self.records.append(MovePlan(0, name, len(self.records), 9, "User:c", "because", entries))

    def remove(self) -> None:
        if self.topics:
            topic_id = self.random.choice(list(self.topics))
            del self.topics[topic_id]
            self.replicas = {key: replicas for key, replicas in self.replicas.items() if key[0] != topic_id}
            self.moving = {key: known for key, known in self.moving.items() if key[0] != topic_id}
            self.waiting = {key for key in self.waiting if key[0] != topic_id}
            self.records.append(RemoveTopic(0, topic_id))

    def config(self) -> None:
        resource = (RESOURCE_BROKER, self.random.choice(["", "1"]))
        if self.topics and self.random.random() < 0.7:
            resource = (RESOURCE_TOPIC, self.random.choice(list(self.topics.values())))
        value = self.random.choice([None, "1", "2"])
        self.records.append(Config(0, *resource, self.random.choice(["segment.bytes", "retention.ms"]), value))

    def broker(self) -> None:
        broker_id = self.random.randrange(6)
        epoch = self.epochs[broker_id] = len(self.records)
        log_dirs = tuple(sorted(self.random.sample([(i + 1000 + 10 * broker_id).to_bytes(16, "big") for i in range(3)], 2)))
        self.records.append(
            RegisterBroker(
                0, broker_id, self.random.randbytes(16), epoch, (Listener("PEER", "host", 9092),), rack="r", log_dirs=log_dirs
            )
        )
        self.records.append(RegisterController(0, 3000 + broker_id, self.random.randbytes(16)))

    def registration(self) -> None:
        if self.epochs:
            broker_id, epoch = self.random.choice(list(self.epochs.items()))
            kind = self.random.randrange(6)
            if kind == 0:
                del self.epochs[broker_id]
                self.records.append(UnregisterBroker(0, broker_id, epoch))
            elif kind == 1:
                self.records.append(BrokerRegistrationChange(0, broker_id, epoch, fenced=self.random.random() < 0.5))
            elif kind == 2:
                self.records.append(BrokerRegistrationChange(0, broker_id, epoch, in_controlled_shutdown=True, log_dirs=()))
            elif kind == 3:
                cordoned = self.random.choice([(), ((1000 + 10 * broker_id).to_bytes(16, "big"),)])
                self.records.append(BrokerRegistrationChange(0, broker_id, epoch, cordoned_log_dirs=cordoned))
            elif kind == 4:
                self.producer_id += self.random.randint(1, 2000)
                self.records.append(ProducerIds(0, broker_id, epoch, self.producer_id))
            else:
                self.records.append(NoOp(0))

    def acl(self) -> None:
        if self.acls and self.random.random() < 0.4:
            acl_id = self.random.choice(list(self.acls))
            del self.acls[acl_id]
            self.records.append(RemoveAccessControlEntry(0, acl_id))
            return
        rule = (self.random.choice("*abc"), self.random.randint(2, 12))
        if rule not in self.acls.values():
            acl_id = self.random.randbytes(16)
            self.acls[acl_id] = rule
            self.records.append(AccessControlEntry(0, acl_id, 2, rule[0], 3, "User:alice", "*", rule[1], 3))

    def credential(self) -> None:
        key = (self.random.choice("uvw"), self.random.randint(1, 2))
        if key in self.credentials and self.random.random() < 0.5:
            self.credentials.remove(key)
            self.records.append(RemoveUserScramCredential(0, *key))
        else:
            self.credentials.add(key)
            secrets = [self.random.randbytes(8) for _ in range(3)]
            self.records.append(UserScramCredential(0, *key, *secrets, iterations=4096))

    def outcome(self) -> None:
        client_id = bytes([0xC0 + self.random.randrange(4)]) * 16
        sequence = self.sequences[client_id] = self.sequences.get(client_id, 0) + self.random.choice((1, 1, 1, 4))
        self.time_ms += self.random.choice((0, 10, 1_000, 250_000))
        answer = b"answer" * self.random.randrange(3)
        self.records.append(RequestOutcome(0, client_id, sequence, b"d" * 16, self.time_ms, answer))

    def quota(self) -> None:
        name = self.random.choice([None, "u", "v"])
        entity = self.random.choice([(("user", name),), (("client-id", "c"), ("user", name)), (("ip", None),)])
        key = self.random.choice(["producer_byte_rate", "consumer_byte_rate"])
        self.records.append(ClientQuota(0, entity, key, float(self.random.randint(1, 9)), self.random.random() < 0.4))

    def aborted(self) -> None:
        never = Topic(0, "never", self.random.randbytes(16))
        self.records += [BeginTransaction(0), never, AbortTransaction(0, "changed its mind")]


@pytest.fixture(scope="session")
def history() -> Callable[[int, int], History]:
    """(seed, length) → a history of about that many records, which begins with the bootstrap records."""
    return lambda seed, length: HistoryWriter(seed).write(length)
