-------------------------------- MODULE Trace --------------------------------
(* Holds recorded traces against Kraftlab. TraceData is written by          *)
(* traces.py: Traces[t] is a sequence of lines. A line names an action, its *)
(* node and arguments, and has the node's variables after it. A trace is    *)
(* accepted if some behaviour of Kraftlab takes all its lines.              *)
EXTENDS Kraftlab, TraceData, TLC

VARIABLES trace, line

\* The message of a line, if it has left its sender. A line knows a snapshot's end, not its log.
Known(x) ==
    IF x.m.type = "SnapshotReply"
    THEN {m \in net : m.type = "SnapshotReply" /\ m.from = x.m.from /\ m.to = x.m.to /\ m.epoch = x.m.epoch
                      /\ <<End(m.log), LastEpoch(m.log)>> = x.m.snapshot}
    ELSE {x.m, [x.m EXCEPT !.to = Nobody]} \cap net       \* sent to this node, or to anybody

IsSent(n, m) == m \in net' \/ \E i \in node'[n].outbox : i.m = m

Take(x) ==
    LET n == x.n IN
    CASE x.do = "Begin"         -> UNCHANGED vars
      [] x.do = "Restart"       -> \E image \in Images(n), e \in Elections(n) :
                                      /\ End(image) = x.end /\ (IF image = <<>> THEN TRUE ELSE Last(image).id = x.id)
                                      /\ Restart(n, image, e, x.start, x.hw)
      [] x.do = "Arrive"        -> Known(x) # {} /\ UNCHANGED vars
      [] x.do = "Appear"        -> net' = net \cup {x.m} /\ UNCHANGED <<node, disk, ghost>>
      [] x.do = "Forget"        -> net' = net \ x.messages /\ UNCHANGED <<node, disk, ghost>>
      [] x.do = "AdoptEpoch"    -> AdoptEpoch(n, x.m)
      [] x.do = "OpenEpoch"     -> OpenEpoch(n)
      [] x.do = "Follow"        -> Follow(n, x.m)
      [] x.do = "StandDown"     -> StandDown(n)
      [] x.do = "LoseLeader"    -> LoseLeader(n)
      [] x.do = "LoseTouch"     -> LoseTouch(n)
      [] x.do = "Stand"         -> Stand(n)
      [] x.do = "Campaign"      -> Campaign(n)
      [] x.do = "RequestVote"   -> RequestVote(n, x.m.to) /\ IsSent(n, x.m)
      [] x.do = "Vote"          -> Vote(n, x.m)
      [] x.do = "Grant"         -> Grant(n, x.asked) /\ IsSent(n, x.m)
      [] x.do = "CountGrant"    -> Known(x) # {} /\ CountGrant(n, x.m)
      [] x.do = "Lead"          -> Lead(n, x.batch)
      [] x.do = "Resign"        -> Resign(n)
      [] x.do = "CheckQuorum"   -> CheckQuorum(n)
      [] x.do = "Announce"      -> Announce(n, x.m.to) /\ IsSent(n, x.m)
      [] x.do = "Tell"          -> Tell(n, x.asked) /\ IsSent(n, x.m)
      [] x.do = "Refuse"        -> Send(n, View(n, x.m.to)) /\ IsSent(n, x.m)
      [] x.do = "Propose"       -> Propose(n, x.batch)
      [] x.do = "Fetch"         -> Fetch(n, x.m.to) /\ IsSent(n, x.m)
      [] x.do = "Acknowledge"   -> Known(x) # {} /\ Acknowledge(n, x.m)
      [] x.do = "Serve"         -> Serve(n, x.asked, x.to) /\ IsSent(n, x.m)
      [] x.do = "ServeClient"   -> Set(n, [node[n] EXCEPT !.isNamed = TRUE]) /\ UNCHANGED <<disk, net, ghost>>
      [] x.do = "Hear"          -> Hear(n, x.m)
      [] x.do = "TakeRecords"   -> TakeRecords(n, x.m)
      [] x.do = "Truncate"      -> Truncate(n, x.m)
      [] x.do = "Durable"       -> Durable(n, x.count)
      [] x.do = "Stored"        -> Stored(n, x.count)
      [] x.do = "Commit"        -> Commit(n, x.hw)
      [] x.do = "Clean"         -> Clean(n, x.offset)
      [] x.do = "OfferSnapshot" -> OfferSnapshot(n, x.asked) /\ IsSent(n, x.m)
      [] x.do = "FetchSnapshot" -> FetchSnapshot(n) /\ IsSent(n, x.m)
      [] x.do = "ServeSnapshot" -> ServeSnapshot(n, x.asked, x.m.snapshot[1])
      [] x.do = "Copy"          -> \E m \in Known(x) : Copy(n, m)
      [] x.do = "Install"       -> Install(n)
      [] x.do = "AskRead"       -> AskRead(n, x.token)
      [] x.do = "AnswerRead"    -> \E read \in node[n].reads :
                                      /\ read.token = x.token /\ AnswerRead(n, read)
                                      /\ x.offset = IF read.offset = -1 THEN node[n].hw ELSE read.offset

\* The node has the variables of the line. (That no property is broken is an invariant of the run.)
After(x) ==
    LET s == node'[x.n] IN
    /\ s.role = x.role /\ s.epoch = x.epoch /\ s.leader = x.leader /\ s.voted = x.voted
    /\ End(s.log) = x.end /\ s.hw = x.hw
    /\ End(DurableLog(disk'[x.n].log, s)) = x.durable
    /\ x.voters = {} \/ Voters(s.log) = x.voters

Start == Init /\ trace \in 1..Len(Traces) /\ line = 0
Next ==
    /\ line < Len(Traces[trace])
    /\ line' = line + 1 /\ trace' = trace
    /\ LET x == Traces[trace][line + 1] IN Take(x) /\ (x.do = "Forget" \/ After(x))
Spec == Start /\ [][Next]_<<vars, trace, line>>

\* Tells how far each trace has come; always true.
Progress == PrintT(<<"line", trace, line>>)
\* Tells the state of a node before a line that no action explains; always true.
Before == trace = 1 /\ line = StopAt => PrintT(<<"before", node[StopNode], disk[StopNode]>>)
===============================================================================
