------------------------------- MODULE Kraftlab -------------------------------
(***************************************************************************)
(* The metadata quorum of kraftlab: Raft with pull fetch (KIP-595), voter  *)
(* changes one at a time (KIP-853), pre-votes (KIP-996), snapshots         *)
(* (KIP-630) and linearizable reads (Ongaro's thesis, 6.4).                *)
(*                                                                         *)
(* Written from quorum/core. One step of RaftNode is one or several of     *)
(* these actions in a row, all of one node. README.md goes through the     *)
(* module in prose and says what it leaves out. There are only actions and *)
(* properties here: Model.tla and Trace.tla each have a Next.              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Node,           \* every replica: voters, future voters, observers
    Nobody,         \* no node; as the receiver of a message: anybody (traces of clients' and observers' requests)
    FirstVoters     \* the voters of a log that names none

VARIABLES
    node,           \* the memory of each node, lost with its process
    disk,           \* the disk of each node: its log, its election state, its copy of a snapshot
    net,            \* every message that has left a node: it arrives at any time, any number of times, or never
    ghost           \* facts that no node knows: elections, commits, answered reads

vars == <<node, disk, net, ghost>>

-------------------------------------------------------------------------------
(* Logs. A log is a sequence of batches [epoch, end, id, voters]: `end` is  *)
(* the offset after the batch, `id` tells batches of one position apart,    *)
(* and `voters` is {} unless the batch changes the voters.                  *)

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Last(sequence) == sequence[Len(sequence)]

End(log) == IF log = <<>> THEN 0 ELSE Last(log).end
LastEpoch(log) == IF log = <<>> THEN 0 ELSE Last(log).epoch

\* The batches that end at `offset` or before.
\* (From the end on: offsets are mostly near it, and traces have long logs.)
RECURSIVE Batches(_, _, _)
Batches(log, offset, i) == IF i = 0 THEN 0 ELSE IF log[i].end <= offset THEN i ELSE Batches(log, offset, i - 1)
Cut(log, offset) == IF End(log) <= offset THEN log ELSE SubSeq(log, 1, Batches(log, offset, Len(log)))
UpToEpoch(log, e) == SelectSeq(log, LAMBDA batch : batch.epoch <= e)

IsPrefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a
Shared(a, b) ==
    LET most == Min(Len(a), Len(b))
        Agree(i) == SubSeq(a, 1, i) = SubSeq(b, 1, i)
    IN SubSeq(a, 1, IF Agree(most) THEN most ELSE CHOOSE i \in 0..most : Agree(i) /\ ~Agree(i + 1))

\* `log` has a batch that ends at `offset`, and it is of epoch `e`.
Holds(log, offset, e) == LET before == Cut(log, offset) IN End(before) = offset /\ LastEpoch(before) = e

IsUpToDate(lastEpoch, end, log) == lastEpoch > LastEpoch(log) \/ (lastEpoch = LastEpoch(log) /\ end >= End(log))

-------------------------------------------------------------------------------
(* Voters. They are in the log, and count from the moment of the append.    *)

Changes(log) == SelectSeq(log, LAMBDA batch : batch.voters # {})
Voters(log) == LET changes == Changes(log) IN IF changes = <<>> THEN FirstVoters ELSE Last(changes).voters
VotersEnd(log) == LET changes == Changes(log) IN IF changes = <<>> THEN -1 ELSE Last(changes).end
VotersBefore(log) ==
    LET changes == Changes(log) IN IF Len(changes) < 2 THEN FirstVoters ELSE changes[Len(changes) - 1].voters

IsMajority(some, voters) == 2 * Cardinality(some \cap voters) > Cardinality(voters)

\* A voter may stand, and also one that was removed by a record that may never be committed.
MayStand(n) == LET log == node[n].log IN
    \/ n \in Voters(log)
    \/ n \in VotersBefore(log) /\ VotersEnd(log) > node[n].hw

-------------------------------------------------------------------------------
(* Memory and disk. `writing` and `storing` are the operations that the     *)
(* disk has not completed: the log after each and the part of the old log   *)
(* that stays meanwhile; the election state. A message waits in `outbox`    *)
(* until everything that it says is on the disk.                            *)

Election(s) == [epoch |-> s.epoch, leader |-> s.leader, voted |-> s.voted]
NoElection == [epoch |-> 0, leader |-> Nobody, voted |-> Nobody]
NoProgress == [n \in Node |-> -1]

Requested(n, s) == IF s.storing = <<>> THEN disk[n].election ELSE Last(s.storing)

\* `s`, and the request to store its election state if that has changed.
Stores(n, s) == IF Requested(n, s) = Election(s) THEN s ELSE [s EXCEPT !.storing = Append(@, Election(s))]

Writes(s, kept, log) == [s EXCEPT !.log = log, !.writing = Append(@, [kept |-> kept, log |-> log])]

\* The part of the log that no crash can take back.
RECURSIVE Kept(_, _)
Kept(log, writing) == IF writing = <<>> THEN log ELSE Kept(Shared(log, Head(writing).kept), Tail(writing))
DurableLog(onDisk, s) == Kept(Shared(onDisk, s.log), s.writing)

\* start       start of the log: everything below is only in the snapshot
\* hw          high watermark, -1 if unknown
\* grants      votes and pre-votes that this node got in its epoch
\* heard       a follower has heard from its leader (and grants no pre-vote)
\* round       round of reads: a leader names it in its answers, followers echo it in their fetches
\* isNamed     an answer has named the round, so that the next read opens a new one
\* epochStart  end of the log when this node became the leader
\* acked, echoed, fetchers    of a leader: offsets and rounds of fetches; who has fetched since a majority last had
Memory(role, e, l, v, log, start, hw) ==
    [role |-> role, epoch |-> e, leader |-> l, voted |-> v, log |-> log, start |-> start, hw |-> hw,
     grants |-> {}, heard |-> FALSE, round |-> 0,
     epochStart |-> -1, acked |-> NoProgress, echoed |-> NoProgress, reads |-> {}, isNamed |-> TRUE, fetchers |-> {},
     writing |-> <<>>, storing |-> <<>>, outbox |-> {}]

\* The same node in another role or epoch: what belongs to a leadership, or to a fetch from a leader, is gone.
Becomes(s, role, e, l, v) ==
    [s EXCEPT !.role = role, !.epoch = e, !.leader = l, !.voted = v,
              !.grants = IF e = s.epoch THEN @ ELSE {}, !.heard = FALSE, !.round = 0,
              !.epochStart = -1, !.acked = NoProgress, !.echoed = NoProgress, !.reads = {}, !.isNamed = TRUE, !.fetchers = {}]

Set(n, s) == node' = [node EXCEPT ![n] = s]
Move(n, role, e, l, v) == Set(n, Stores(n, Becomes(node[n], role, e, l, v)))

Init ==
    /\ node = [n \in Node |-> Memory("unattached", 0, Nobody, Nobody, <<>>, 0, -1)]
    /\ disk = [n \in Node |-> [log |-> <<>>, election |-> NoElection, copy |-> <<>>]]
    /\ net = {}
    /\ ghost = [elected |-> {}, commits |-> {}, stale |-> FALSE]

\* The longest log that a leader has committed.
Committed == LET logs == {c.log : c \in ghost.commits} \cup {<<>>} IN CHOOSE log \in logs : \A other \in logs : End(other) <= End(log)

-------------------------------------------------------------------------------
(* Messages. A record has what the core's message of that name says, as far *)
(* as it matters here. A View is every answer that only tells epoch and     *)
(* leader of its sender.                                                    *)

\* What a message waits for: the election state always, the log only if the message acknowledges it.
Item(s, m) == [m |-> m, stores |-> Len(s.storing), writes |-> IF m.type = "Fetch" THEN Len(s.writing) ELSE 0]

\* Hands `m` to the network, as soon as the disk has what it says. `s` is the sender's memory from now on.
SendAs(n, s, m) ==
    LET item == Item(s, m) IN
    IF item.stores + item.writes = 0
    THEN net' = net \cup {m} /\ Set(n, s)
    ELSE Set(n, [s EXCEPT !.outbox = @ \cup {item}]) /\ UNCHANGED net
Send(n, m) == SendAs(n, node[n], m) /\ UNCHANGED <<disk, ghost>>

\* The outbox after the disk has completed some operations, and the messages that leave.
Waiting(s, stores, writes) ==
    {[i EXCEPT !.stores = Max(0, @ - stores), !.writes = Max(0, @ - writes)] : i \in s.outbox}
Ready(items) == {i \in items : i.stores + i.writes = 0}

\* A node that has resigned names nobody: it would draw followers back.
LeaderInView(n) == IF node[n].role = "resigned" THEN Nobody ELSE node[n].leader

Addressed(n) == {m \in net : m.to \in {n, Nobody} /\ m.from # n}

\* The leadership that a message names.
Names(m) == IF m.type \in {"Begin", "End"} THEN m.from ELSE IF m.type \in {"Vote", "Fetch", "FetchSnapshot"} THEN Nobody ELSE m.leader

-------------------------------------------------------------------------------
(* Epochs and leaders.                                                      *)

\* A message names a higher epoch.
AdoptEpoch(n, m) ==
    /\ m.epoch > node[n].epoch
    /\ Move(n, "unattached", m.epoch, Nobody, Nobody)
    /\ UNCHANGED <<disk, net, ghost>>

\* One that led this epoch opens the next when its election timer ends: it can not win this one again.
OpenEpoch(n) ==
    /\ node[n].role = "resigned"
    /\ Move(n, "unattached", node[n].epoch + 1, Nobody, Nobody)
    /\ UNCHANGED <<disk, net, ghost>>

\* A message names the leader of this epoch or a higher one.
Follow(n, m) ==
    LET s == node[n] IN
    /\ Names(m) \notin {Nobody, n}
    /\ m.epoch >= s.epoch
    /\ m.epoch = s.epoch => s.leader \in {Nobody, Names(m)} /\ s.role \notin {"leader", "resigned"}
    /\ Move(n, "follower", m.epoch, Names(m), IF m.epoch = s.epoch THEN s.voted ELSE Nobody)
    /\ UNCHANGED <<disk, net, ghost>>

\* Back to the leader that is remembered. (The core does it when a majority has refused its pre-vote; nothing unsafe hangs on that.)
StandDown(n) ==
    LET s == node[n] IN
    /\ s.role = "prospective" /\ s.leader # Nobody
    /\ Move(n, "follower", s.epoch, s.leader, s.voted)
    /\ UNCHANGED <<disk, net, ghost>>

\* Stops following, or asking for pre-votes, and remembers the leader.
LoseLeader(n) ==
    LET s == node[n] IN
    /\ s.role \in {"follower", "prospective", "unattached"}
    /\ Move(n, "unattached", s.epoch, s.leader, s.voted)
    /\ UNCHANGED <<disk, net, ghost>>

\* Learns that its leader has resigned, or that its process has ended: a refused connection.
LoseTouch(n) ==
    /\ node[n].role = "follower" /\ node[n].heard
    /\ Set(n, [node[n] EXCEPT !.heard = FALSE])
    /\ UNCHANGED <<disk, net, ghost>>

-------------------------------------------------------------------------------
(* Elections.                                                               *)

\* Asks for pre-votes: an election or fetch timeout.
Stand(n) ==
    LET s == node[n] IN
    /\ s.role \in {"unattached", "follower", "candidate"}
    /\ MayStand(n)
    /\ Move(n, "prospective", s.epoch, s.leader, s.voted)
    /\ UNCHANGED <<disk, net, ghost>>

Granted(n, isPreVote) == {g[1] : g \in {grant \in node[n].grants : grant[2] = isPreVote}}

OpenWithVote(n) == Move(n, "candidate", node[n].epoch + 1, Nobody, n) /\ UNCHANGED <<disk, net, ghost>>

\* A majority of pre-votes opens the next epoch.
Campaign(n) ==
    /\ node[n].role = "prospective"
    /\ IsMajority(Granted(n, TRUE) \cup {n}, Voters(node[n].log))
    /\ OpenWithVote(n)

\* A core without pre-votes, as experiments set it. It allows every election that pre-votes allow, and more.
CampaignAtOnce(n) == node[n].role \in {"unattached", "follower", "prospective", "candidate"} /\ MayStand(n) /\ OpenWithVote(n)

VoteRequest(n, to) ==
    LET s == node[n] IN
    [type |-> "Vote", from |-> n, to |-> to, epoch |-> s.epoch, isPreVote |-> s.role = "prospective",
     lastEpoch |-> LastEpoch(s.log), end |-> End(s.log)]
MayRequest(n, to) == node[n].role \in {"prospective", "candidate"} /\ to \in Voters(node[n].log) \ {n}
RequestVote(n, to) == MayRequest(n, to) /\ Send(n, VoteRequest(n, to))

\* The one vote of this epoch. Any node may give it: the candidate may know of a change that makes this node a voter (KIP-853).
Vote(n, m) ==
    LET s == node[n] IN
    /\ m.type = "Vote" /\ ~m.isPreVote /\ m.epoch = s.epoch
    /\ s.role \in {"unattached", "prospective"}
    /\ s.leader = Nobody
    /\ s.voted = Nobody
    /\ IsUpToDate(m.lastEpoch, m.end, s.log)
    /\ Move(n, "unattached", s.epoch, Nobody, m.from)
    /\ UNCHANGED <<disk, net, ghost>>

\* A follower that hears from its leader grants no pre-vote, and a pre-vote promises nothing.
MayGrant(n, m) ==
    LET s == node[n] IN
    /\ m.type = "Vote" /\ m.epoch = s.epoch
    /\ IF m.isPreVote
       THEN IsUpToDate(m.lastEpoch, m.end, s.log) /\ s.role # "leader" /\ ~(s.role = "follower" /\ s.heard)
       ELSE s.voted = m.from

VoteReply(n, m) ==
    [type |-> "VoteReply", from |-> n, to |-> m.from, epoch |-> node[n].epoch, leader |-> LeaderInView(n), isPreVote |-> m.isPreVote]
Grant(n, m) == MayGrant(n, m) /\ Send(n, VoteReply(n, m))

IsGrant(n, m) ==
    /\ m.type = "VoteReply" /\ m.epoch = node[n].epoch
    /\ node[n].role = IF m.isPreVote THEN "prospective" ELSE "candidate"
    /\ m.from \in Voters(node[n].log)
CountGrant(n, m) ==
    /\ IsGrant(n, m)
    /\ Set(n, [node[n] EXCEPT !.grants = @ \cup {<<m.from, m.isPreVote>>}])
    /\ UNCHANGED <<disk, net, ghost>>

\* A candidate's own vote counts when it is on its disk, and nobody leads before that.
HasStoredVote(n) ==
    LET e == disk[n].election IN e.epoch > node[n].epoch \/ (e.epoch = node[n].epoch /\ e.voted = n)

\* Leads, and appends the batch that opens the epoch.
Lead(n, batch) ==
    LET s == node[n]
        led == Stores(n, [Becomes(s, "leader", s.epoch, n, s.voted) EXCEPT !.epochStart = End(s.log)])
    IN
    /\ s.role = "candidate"
    /\ HasStoredVote(n)
    /\ IsMajority(Granted(n, FALSE) \cup {n}, Voters(s.log))
    /\ batch.epoch = s.epoch /\ batch.end > End(s.log)
    /\ batch.voters \in {{}, Voters(s.log)}
    /\ Set(n, Writes(led, s.log, Append(s.log, batch)))
    /\ ghost' = [ghost EXCEPT !.elected = @ \cup {<<s.epoch, n>>}]
    /\ UNCHANGED <<disk, net>>

\* A leader gives up: asked to, handing over, shutting down, its disk full, or no longer a voter.
Resign(n) ==
    LET s == node[n] IN
    /\ s.role = "leader"
    /\ Move(n, "resigned", s.epoch, n, s.voted)
    /\ UNCHANGED <<disk, net, ghost>>

\* The check-quorum timer ends before a majority has fetched. (A majority starts it again: Acknowledge.) This is a Resign with its
\* reason, for traces.
CheckQuorum(n) == ~IsMajority(node[n].fetchers \cup {n}, Voters(node[n].log)) /\ Resign(n)

Announcement(n, to) ==
    [type |-> IF node[n].role = "leader" THEN "Begin" ELSE "End", from |-> n, to |-> to, epoch |-> node[n].epoch]
Announce(n, to) == node[n].role \in {"leader", "resigned"} /\ Send(n, Announcement(n, to))

\* Who answers a request that names a higher epoch has adopted it (Raft 5.1). Fetches of observers depose nobody.
Heeds(n, m) == m.type \in {"Vote", "Begin", "End"} => node[n].epoch >= m.epoch

\* Any other answer, a refusal or a receipt: it names epoch and leader.
View(n, to) == [type |-> "View", from |-> n, to |-> to, epoch |-> node[n].epoch, leader |-> LeaderInView(n)]
Tell(n, m) == Heeds(n, m) /\ Send(n, View(n, m.from))

-------------------------------------------------------------------------------
(* The leader's log and its voters.                                         *)

HasCommittedInEpoch(n) == node[n].hw > node[n].epochStart       \* the leader has committed in its epoch

\* One voter more or less, when the last change is committed and this leader has committed in its epoch.
MayChange(n, voters) ==
    LET s == node[n]
        now == Voters(s.log)
    IN
    /\ Cardinality(voters \ now) + Cardinality(now \ voters) <= 1
    /\ voters # {}
    /\ VotersEnd(s.log) <= s.hw
    /\ HasCommittedInEpoch(n)

Propose(n, batch) ==
    LET s == node[n] IN
    /\ s.role = "leader"
    /\ batch.epoch = s.epoch /\ batch.end > End(s.log)
    /\ batch.voters # {} => MayChange(n, batch.voters)
    /\ Set(n, Writes(s, s.log, Append(s.log, batch)))
    /\ UNCHANGED <<disk, net, ghost>>

-------------------------------------------------------------------------------
(* Fetches. Fetch(o) says: everything below o is on my disk.                *)

FetchRequest(n, to) ==
    LET s == node[n] IN
    [type |-> "Fetch", from |-> n, to |-> to, epoch |-> s.epoch, offset |-> End(s.log), lastEpoch |-> LastEpoch(s.log), round |-> s.round]
Fetch(n, to) == node[n].role \in {"follower", "unattached"} /\ Send(n, FetchRequest(n, to))

\* A leader receives a fetch of its epoch, which acknowledges if it is of the leader's log.
Acknowledged(s, n, m) ==
    LET voters == Voters(s.log)
        fetchers == s.fetchers \cup {m.from}
    IN [s EXCEPT
        !.fetchers = IF m.from \notin voters THEN @ ELSE IF IsMajority(fetchers \cup {n}, voters) THEN {} ELSE fetchers,
        !.acked[m.from] = IF m.type = "Fetch" /\ Holds(s.log, m.offset, m.lastEpoch) THEN Max(@, m.offset) ELSE @,
        !.echoed[m.from] = IF m.type = "Fetch" THEN Max(@, m.round) ELSE @]
IsFetchFor(n, m) == m.type \in {"Fetch", "FetchSnapshot"} /\ node[n].role = "leader" /\ m.epoch = node[n].epoch
Acknowledge(n, m) == IsFetchFor(n, m) /\ Set(n, Acknowledged(node[n], n, m)) /\ UNCHANGED <<disk, net, ghost>>

FetchReply(n, m, outcome, data) ==
    LET s == node[n] IN
    [type |-> "FetchReply", from |-> n, to |-> m.from, epoch |-> s.epoch, leader |-> n, offset |-> m.offset,
     lastEpoch |-> m.lastEpoch, hw |-> IF HasCommittedInEpoch(n) THEN s.hw ELSE -1, round |-> s.round, outcome |-> outcome, data |-> data]
IsToServe(n, m) == m.type = "Fetch" /\ node[n].role = "leader" /\ m.epoch = node[n].epoch

\* The answer to a fetch: records up to the end `to`, or the point where the logs may still agree.
Answer(n, m, to) ==
    LET log == node[n].log
        agree == UpToEpoch(log, m.lastEpoch)
    IN IF Holds(log, m.offset, m.lastEpoch)
       THEN FetchReply(n, m, "records", SelectSeq(Cut(log, to), LAMBDA batch : batch.end > m.offset))
       ELSE FetchReply(n, m, "diverging", <<LastEpoch(agree), End(agree)>>)
Serve(n, m, to) ==
    /\ IsToServe(n, m)
    /\ SendAs(n, [node[n] EXCEPT !.isNamed = TRUE], Answer(n, m, to))
    /\ UNCHANGED <<disk, ghost>>

\* A follower takes notice of its leader's answer.
IsOfLeader(n, m) == node[n].role = "follower" /\ m.from = node[n].leader /\ m.epoch = node[n].epoch
IsOfThisLog(n, m) == m.offset = End(node[n].log) /\ m.lastEpoch = LastEpoch(node[n].log)
Hears(s, m) == [s EXCEPT !.heard = TRUE, !.round = Max(@, IF m.type = "FetchReply" THEN m.round ELSE 0)]

Hear(n, m) ==
    /\ m.type \in {"FetchReply", "SnapshotReply"} /\ IsOfLeader(n, m)
    /\ Set(n, Hears(node[n], m))
    /\ UNCHANGED <<disk, net, ghost>>

\* A follower appends the leader's records and learns its high watermark.
TakeRecords(n, m) ==
    LET s == Hears(node[n], m)
        log == s.log \o m.data
    IN
    /\ m.type = "FetchReply" /\ m.outcome = "records" /\ IsOfLeader(n, m) /\ IsOfThisLog(n, m)
    /\ Set(n, [(IF m.data = <<>> THEN s ELSE Writes(s, s.log, log)) EXCEPT !.hw = Max(@, Min(End(log), m.hw))])
    /\ UNCHANGED <<disk, net, ghost>>

\* The offset to which a follower cuts its log.
CutAt(n, m) ==
    LET agree == UpToEpoch(node[n].log, m.data[1])
    IN IF LastEpoch(agree) = m.data[1] THEN Min(End(agree), m.data[2]) ELSE End(agree)

\* A follower drops the tail that its leader does not have. (Below its high watermark it stops for good instead.)
Truncate(n, m) ==
    LET s == Hears(node[n], m)
        log == Cut(s.log, CutAt(n, m))
    IN
    /\ m.type = "FetchReply" /\ m.outcome = "diverging" /\ IsOfLeader(n, m) /\ IsOfThisLog(n, m)
    /\ CutAt(n, m) >= s.hw /\ CutAt(n, m) < End(s.log)
    /\ Set(n, Writes(s, log, log))
    /\ UNCHANGED <<disk, net, ghost>>

-------------------------------------------------------------------------------
(* The disk completes its operations in their order, several at once if it  *)
(* likes: that releases the messages that have waited.                      *)

Durable(n, count) ==
    LET s == node[n]
        items == Waiting(s, 0, count)
    IN
    /\ count \in 1..Len(s.writing)
    /\ disk' = [disk EXCEPT ![n].log = s.writing[count].log]
    /\ Set(n, [s EXCEPT !.writing = SubSeq(@, count + 1, Len(@)), !.outbox = items \ Ready(items)])
    /\ net' = net \cup {i.m : i \in Ready(items)}
    /\ UNCHANGED ghost

Stored(n, count) ==
    LET s == node[n]
        items == Waiting(s, count, 0)
    IN
    /\ count \in 1..Len(s.storing)
    /\ disk' = [disk EXCEPT ![n].election = s.storing[count]]
    /\ Set(n, [s EXCEPT !.storing = SubSeq(@, count + 1, Len(@)), !.outbox = items \ Ready(items)])
    /\ net' = net \cup {i.m : i \in Ready(items)}
    /\ UNCHANGED ghost

\* The logs that a crash can leave: some operations done, the last one perhaps in part.
Images(n) ==
    LET writing == node[n].writing
        Before(i) == IF i = 1 THEN disk[n].log ELSE writing[i - 1].log
        Parts(i) == IF IsPrefix(Before(i), writing[i].log)
                    THEN {SubSeq(writing[i].log, 1, j) : j \in Len(Before(i))..Len(writing[i].log)}
                    ELSE {writing[i].log}
    IN {disk[n].log} \cup UNION {Parts(i) : i \in 1..Len(writing)}
Elections(n) == {disk[n].election} \cup {node[n].storing[i] : i \in 1..Len(node[n].storing)}

\* A process ends, and another one starts from the disk. A leader never leads its epoch again: its records may be gone.
Restart(n, image, e, start, hw) ==
    LET Start(role, number, l, v) == Memory(role, number, l, v, image, start, hw)
        canStand == n \in Voters(image) \/ (n \in VotersBefore(image) /\ VotersEnd(image) > hw)
        started == IF e.epoch < LastEpoch(image) THEN {Start("unattached", LastEpoch(image), Nobody, Nobody)}
                   ELSE IF e.leader = n
                   THEN IF canStand /\ Voters(image) # {n} THEN {Start("resigned", e.epoch, n, e.voted)}
                        ELSE {Start("unattached", e.epoch + 1, Nobody, Nobody)}
                   ELSE {Start("unattached", e.epoch, e.leader, e.voted)} \cup
                        IF e.leader = Nobody THEN {} ELSE {Start("follower", e.epoch, e.leader, e.voted)}
    IN
    /\ image \in Images(n) /\ e \in Elections(n)
    /\ hw \in {-1} \cup {image[i].end : i \in 1..Len(image)} /\ start \in {0} \cup 1..hw
    /\ IsPrefix(Cut(image, hw), Committed)     \* stamps in the log and snapshots know only committed offsets
    /\ disk' = [disk EXCEPT ![n].log = image, ![n].election = e]
    /\ \E s \in started : Set(n, IF Election(s) = e THEN s ELSE [s EXCEPT !.storing = <<Election(s)>>])
    /\ UNCHANGED <<net, ghost>>

-------------------------------------------------------------------------------
(* Commits.                                                                 *)

\* A majority of the voters has everything below `offset` on its disks, and with it a record of this epoch (Raft 5.4.2).
IsHeld(n, offset) ==
    LET EndOn(v) == IF v = n THEN End(DurableLog(disk[n].log, node[n])) ELSE node[n].acked[v]
    IN IsMajority({v \in Node : EndOn(v) >= offset}, Voters(node[n].log))
Commit(n, offset) ==
    LET s == node[n]
        log == Cut(s.log, offset)
    IN
    /\ s.role = "leader"
    /\ offset > Max(s.hw, s.epochStart) /\ End(log) = offset
    /\ IsHeld(n, offset)
    /\ Set(n, [s EXCEPT !.hw = offset])
    /\ ghost' = [ghost EXCEPT !.commits = {c \in @ : c.epoch # s.epoch} \cup {[epoch |-> s.epoch, log |-> log]}]
    /\ UNCHANGED <<disk, net>>

-------------------------------------------------------------------------------
(* Snapshots. Each holds committed records only. The model keeps the whole  *)
(* log of a node; everything below `start` is only in its snapshot.         *)

Clean(n, offset) ==
    LET s == node[n] IN
    /\ offset > s.start /\ offset <= s.hw /\ End(Cut(s.log, offset)) = offset
    /\ Set(n, [s EXCEPT !.start = offset])
    /\ UNCHANGED <<disk, net, ghost>>

\* A leader that can not serve a follower from its log names a snapshot, and the follower asks for its parts.
OfferSnapshot(n, m) ==
    /\ IsToServe(n, m)
    /\ SendAs(n, [node[n] EXCEPT !.isNamed = TRUE], FetchReply(n, m, "snapshot", <<>>))
    /\ UNCHANGED <<disk, ghost>>

SnapshotRequest(n) == [type |-> "FetchSnapshot", from |-> n, to |-> node[n].leader, epoch |-> node[n].epoch]
FetchSnapshot(n) == node[n].role = "follower" /\ Send(n, SnapshotRequest(n))

MayServe(n, m, offset) ==
    /\ m.type = "FetchSnapshot" /\ node[n].role = "leader" /\ m.epoch = node[n].epoch
    /\ offset > 0 /\ offset <= node[n].hw /\ End(Cut(node[n].log, offset)) = offset
SnapshotReply(n, m, offset) ==
    [type |-> "SnapshotReply", from |-> n, to |-> m.from, epoch |-> node[n].epoch, leader |-> n, log |-> Cut(node[n].log, offset)]
ServeSnapshot(n, m, offset) == MayServe(n, m, offset) /\ Send(n, SnapshotReply(n, m, offset))

Copy(n, m) ==
    /\ m.type = "SnapshotReply" /\ IsOfLeader(n, m)
    /\ Set(n, Hears(node[n], m))
    /\ disk' = [disk EXCEPT ![n].copy = m.log]
    /\ UNCHANGED <<net, ghost>>

\* The copy replaces a log that does not reach it, in the order of the log's other writes.
Install(n) ==
    LET s == node[n]
        copy == disk[n].copy
    IN
    /\ s.role = "follower"
    /\ End(copy) > Max(0, s.hw) /\ ~Holds(s.log, End(copy), LastEpoch(copy))
    /\ Set(n, [Writes(s, Cut(s.log, Max(0, s.hw)), copy) EXCEPT !.hw = End(copy), !.start = End(copy)])
    /\ UNCHANGED <<disk, net, ghost>>

-------------------------------------------------------------------------------
(* Linearizable reads. A read notes the high watermark and waits until a    *)
(* majority has echoed its round in a fetch. `need` is a ghost: what was    *)
(* committed when the read began.                                           *)

AskRead(n, token) ==
    LET s == node[n]
        round == IF s.isNamed THEN s.round + 1 ELSE s.round
    IN
    /\ s.role = "leader"
    /\ Set(n, [s EXCEPT !.round = round, !.isNamed = FALSE,
                        !.reads = @ \cup {[token |-> token, round |-> round, offset |-> IF HasCommittedInEpoch(n) THEN s.hw ELSE -1,
                                           need |-> End(Committed)]}])
    /\ UNCHANGED <<disk, net, ghost>>

AnswerRead(n, read) ==
    LET s == node[n]
        offset == IF read.offset = -1 THEN s.hw ELSE read.offset
    IN
    /\ s.role = "leader" /\ read \in s.reads /\ HasCommittedInEpoch(n)
    /\ IsMajority({v \in Node : s.echoed[v] >= read.round} \cup {n}, Voters(s.log))
    /\ Set(n, [s EXCEPT !.reads = @ \ {read}])
    /\ ghost' = [ghost EXCEPT !.stale = @ \/ offset < read.need]
    /\ UNCHANGED <<disk, net>>

-------------------------------------------------------------------------------
(* Properties.                                                              *)

\* An epoch has at most one leader.
ElectionSafety == \A a, b \in ghost.elected : a[1] = b[1] => a[2] = b[2]

\* A leader has everything that earlier epochs have committed.
LeaderCompleteness ==
    \A n \in Node : node[n].role = "leader" => \A c \in ghost.commits : c.epoch < node[n].epoch => IsPrefix(c.log, node[n].log)

\* Two logs with the same batch are the same up to it.
LogMatching ==
    \A a, b \in Node : \A i \in 1..Len(node[a].log), j \in 1..Len(node[b].log) :
        LET x == node[a].log[i]
            y == node[b].log[j]
        IN x.end = y.end /\ x.epoch = y.epoch => SubSeq(node[a].log, 1, i) = SubSeq(node[b].log, 1, j)

\* All commits are of one log, and everything that a node believes committed is a beginning of it, and is in its log or snapshot.
StateMachineSafety ==
    /\ \A c \in ghost.commits : IsPrefix(c.log, Committed)
    /\ \A n \in Node : LET s == node[n] IN
        IsPrefix(Cut(s.log, s.hw), Committed) /\ s.start <= Max(0, s.hw) /\ s.hw <= End(s.log)

\* What is committed is on the disks of a majority, and no crash takes it away. The voters are those of the committed log, or of a
\* longer one: a change counts from its append on, also for what was appended before.
CommittedNeverLost ==
    LET holders == {n \in Node : \A image \in Images(n) : IsPrefix(Committed, image)}
        longer == {node[n].log : n \in {n \in Node : IsPrefix(Committed, node[n].log)}}
    IN \E log \in {Committed} \cup longer : IsMajority(holders, Voters(log))

\* A log has at most one change of the voters that is not committed.
OneUncommittedChange ==
    \A n \in Node : LET log == node[n].log
                         known == Len(Shared(log, Committed))
                     IN Cardinality({i \in known + 1..Len(log) : log[i].voters # {} /\ log[i].voters # Voters(SubSeq(log, 1, i - 1))}) <= 1

\* A read reflects everything that was committed when it began.
LinearizableReads == ~ghost.stale

===============================================================================
