-- Wireshark dissector of Asterism's state channel, as docs/src/wire-formats.md specifies it.
--
-- Copy it into the folder of personal Lua plugins (Help, About Wireshark, Folders), or name it: wireshark -X
-- lua_script:asterism.lua. The port is a preference of the protocol, and "Decode As" works on any other.
--
-- Datagrams are sealed: of a capture as it was taken this shows the clear header. `asterism decrypt` opens a capture
-- with the cluster's key; datagrams that it opened end with a mark, and are shown whole. Lua here has no AES-GCM, so the
-- key cannot be a preference.

local VERSION = 1
local HEADER_BYTES = 32
local SALT_BYTES = 16
local TAG_BYTES = 16
local MARK = "asterism-opened1"
-- Of a frame around datagrams that pass a relay, before the first of them.
local RELAY_HEAD_BYTES = 8
local GROUP_BYTES_MAX = 1200
local RUNS_MAX = 64
local MEMBERS_MAX = 64
local KEYS_MAX = 4
-- Runs of an ask.
local ASKED_MAX = 16
-- Of an auditor: segments of an object, and leaves of one.
local SEGMENTS, SEGMENT_LEAVES = 4, 64
-- 2^56: sequences beyond it are malformed.
local SEQUENCE_MAX = UInt64.new(0, 0x1000000)
-- Microseconds since 1970 that a clock shows at most: 2^62 - 1.
local CLOCK_MAX = UInt64.new(0xffffffff, 0x3fffffff)
-- What a header has before its counter: alike in all datagrams that the kernel joined, but for the key's id (the second byte).
local ALIKE_BYTES = 24

local proto = Proto("asterism", "Asterism State Channel")

--- Fields

local COOKIE_BYTES, HANDSHAKE_BYTES, RETRY_BYTES = 16, 96, 80
local HANDSHAKES = { [1] = "Hello", [2] = "Challenge", [3] = "Echo", [4] = "Welcome" }
local KINDS = {
    [1] = "records", [2] = "acknowledge", [3] = "keep-alive", [4] = "snapshot", [5] = "snapshot end",
    [6] = "snapshot acknowledge", [8] = "join", [9] = "join confirm", [10] = "join vector", [11] = "leave",
    [12] = "leave confirm", [13] = "close", [128] = "padding", [129] = "audit", [130] = "keys",
    [131] = "stream", [132] = "ask", [133] = "lacks", [134] = "clock",
    [135] = "placements",
}
local RELAY_KINDS = { [1] = "to be handed on", [2] = "handed on" }
local COVERS = { [0] = "changes", [1] = "the full state" }

local fields = {}
local function declare(make, name, title, ...)
    local field = make("asterism." .. name, title, ...)
    fields[name] = field
end
local function list(make, entries, ...)
    for _, entry in ipairs(entries) do
        declare(make, entry[1], entry[2], ...)
    end
end

list(ProtoField.uint8, { { "version", "Wire version" }, { "key", "Key id" }, { "message.version", "Wire version" } })
declare(ProtoField.uint8, "handshake", "Handshake", base.DEC, { [0] = "no", [1] = "yes" })
declare(ProtoField.uint8, "handshake.kind", "Kind", base.DEC, HANDSHAKES)
declare(ProtoField.uint8, "frame.kind", "Kind", base.DEC, KINDS)
declare(ProtoField.uint8, "relay.kind", "What becomes of it", base.DEC, RELAY_KINDS)
declare(ProtoField.uint8, "snapshot_end.covers", "Covers", base.DEC, COVERS)
declare(ProtoField.uint8, "audit.turn", "Reading", base.DEC, { [0] = "first", [1] = "second" })
list(ProtoField.uint8, {
    { "message.echoes", "Echoes" }, { "keep_alive.flags", "Flags" }, { "snapshot_acknowledge.flags", "Flags" },
    { "join_vector.flags", "Flags" }, { "close.flags", "Flags" }, { "keys.id", "Key id" },
    { "clock.flags", "Flags" },
    { "records.object", "Object of the first operation" }, { "records.flags", "Flags of the first operation" },
    { "audit.object", "Object" }, { "audit.segment", "Segment" },
    { "snapshot.object", "Object of the first entry" }, { "snapshot.flags", "Flags of the first entry" },
})
list(ProtoField.uint16, {
    { "member", "Member" }, { "handshake.to_member", "To member" }, { "echo.member", "Member" },
    { "acknowledge.origin", "Origin" }, { "snapshot_end.member", "Member" }, { "join_confirm.member", "Member" },
    { "join_vector.member", "Member" }, { "leave_confirm.member", "Member" }, { "close.member", "Member" },
    { "ask.origin", "Origin" }, { "lacks.origin", "Origin" },
    { "relay.member", "Wrapped by member" }, { "relay.length", "Bytes of the datagram" },
    { "join_vector.of", "Contains what is held by member" }, { "close.of", "Contains what is held by member" },
})
list(ProtoField.uint32, {
    { "relay.cluster", "Cluster" }, { "cluster", "Cluster" }, { "epoch", "Epoch" }, { "message.cluster", "Cluster" }, { "message.epoch", "Epoch" },
    { "audit.number", "Round" }, { "snapshot.scan", "Scan" }, { "snapshot.index", "Index of the chunk" }, { "snapshot_end.scan", "Scan" },
    { "snapshot_end.chunks", "Chunks" }, { "snapshot_acknowledge.scan", "Scan" },
    { "snapshot_acknowledge.prefix", "Chunks before this arrived" }, { "keys.check", "Check" },
    { "placements.begun", "Begun so often" }, { "placements.covered", "Answered of all" },
})
list(ProtoField.uint32, { { "session", "Session" }, { "handshake.to_session", "To session" } }, base.HEX)
list(ProtoField.uint64, {
    { "incarnation", "Incarnation" }, { "counter", "Counter" }, { "handshake.to_incarnation", "To incarnation" },
    { "message.timestamp", "Timestamp (us)" }, { "message.head", "Head of the sender's log" },
    { "echo.timestamp", "Timestamp (us)" }, { "echo.held", "Held for (us)" },
    { "frame.length", "Length" }, { "records.first", "First sequence" }, { "records.last", "Last sequence" },
    { "records.sequence", "Sequence" }, { "records.length", "Length" },
    { "acknowledge.entries", "Entries" }, { "acknowledge.applied", "Applied" }, { "acknowledge.ahead", "Ahead" },
    { "acknowledge.received", "Received" },
    { "snapshot_end.streams", "Streams" }, { "snapshot_end.sequence", "Covered up to" },
    { "join.incarnation", "Incarnation" }, { "join_confirm.incarnation", "Incarnation" },
    { "join_confirm.head", "Head" }, { "join_vector.incarnations", "Incarnations" }, { "leave.head", "Head" },
    { "leave_confirm.applied", "Applied" },
    { "audit.members", "Members" }, { "audit.sequence", "Sequence" }, { "stream.sequence", "Sent up to" },
    { "ask.first", "First sequence" }, { "ask.last", "Last sequence" },
    { "lacks.first", "First sequence" }, { "lacks.last", "Last sequence" },
    { "clock.cluster", "Cluster's time (us since 1970)" }, { "clock.date", "Date (us since 1970)" },
})
list(ProtoField.uint64, {
    { "placements.wanted", "Objects replicated by configuration" }, { "placements.shared", "Objects shared" },
    { "placements.last", "Objects begun last" }, { "placements.ever", "Objects ever begun" },
    { "audit.digest", "Digest" }, { "audit.changed", "Changed leaves" }, { "stream.digest", "Digest up to there" },
}, base.HEX)
for _, name in ipairs({ "join_vector", "close" }) do
    list(ProtoField.uint64, {
        { name .. ".incarnation", "Incarnation" }, { name .. ".prefix", "Prefix" }, { name .. ".members", "Members" },
    })
end
list(ProtoField.uint64, {
    { "acknowledge.runs", "Runs" }, { "acknowledge.missing", "Missing" }, { "acknowledge.present", "Present" },
    { "acknowledge.first", "First of the run" }, { "acknowledge.last", "Last of the run" },
})
-- Bits of flags, least first.
local BITS = {
    ["snapshot_acknowledge"] = { { "end", "The end arrived" }, { "joined", "The snapshot is joined" } },
    ["join_vector"] = { { "loose", "Holds what the prefix does not say" }, { "settled", "Closed in an earlier epoch" } },
}
BITS["close"] = BITS["join_vector"]
for name, bits in pairs(BITS) do
    for place, bit in ipairs(bits) do
        declare(ProtoField.uint8, name .. "." .. bit[1], bit[2], base.DEC, { [0] = "no", [1] = "yes" }, 2 ^ (place - 1))
    end
end
declare(ProtoField.uint64, "snapshot_acknowledge.bits", "Arrived beyond", base.HEX)
list(ProtoField.bytes, {
    { "salt", "Salt" }, { "sealed", "Sealed" }, { "tag", "Tag" }, { "handshake.nonce", "Nonce" }, { "handshake.terms", "Terms" },
    { "handshake.cookie", "Cookie" }, { "retry.answers", "Answers the handshake with tag" }, { "retry.cookie", "Cookie" },
    { "records.group", "Operation group" }, { "snapshot.chunk", "Chunk" }, { "padding", "Padding" },
    { "skipped", "Unknown body" },
})
list(ProtoField.none, {
    { "header", "Header" }, { "relay", "Frame of a relay" }, { "handshake.message", "Handshake" }, { "message", "State message" }, { "frame", "Frame" },
    { "echo", "Echo" }, { "acknowledge.entry", "Entry" }, { "held", "Held" }, { "run", "Run" },
    { "opened", "Opened by asterism decrypt" },
})
proto.fields = fields

local experts = {
    malformed = ProtoExpert.new("asterism.malformed", "Malformed: every host refuses the message",
        expert.group.MALFORMED, expert.severity.ERROR),
    future = ProtoExpert.new("asterism.future", "Not of this version: hosts of it refuse the message",
        expert.group.UNDECODED, expert.severity.WARN),
    joined = ProtoExpert.new("asterism.joined", "Several datagrams, which the sending host captured before they were cut",
        expert.group.COMMENTS_GROUP, expert.severity.NOTE),
}
proto.experts = experts

--- Reading

-- Reads from `at` up to `stop` of a buffer. What cannot be read is raised, as a text, and caught once for each body.
local Reader = {}
Reader.__index = Reader

local function reader(buffer, at, stop)
    return setmetatable({ buffer = buffer, at = at, stop = stop }, Reader)
end

function Reader:left()
    return self.stop - self.at
end

function Reader:take(bytes, what)
    if bytes > self:left() then
        error({ what .. " is cut short" })
    end
    local range = self.buffer(self.at, bytes)
    self.at = self.at + bytes
    return range
end

-- The rest, which may be nothing: a range of no bytes cannot be made.
function Reader:rest()
    local range = self:left() > 0 and self.buffer(self.at, self:left()) or nil
    self.at = self.stop
    return range
end

function Reader:varint(what)
    local from, value, shift = self.at, UInt64.new(0, 0), 0
    while true do
        local byte = self:take(1, what):uint()
        local bits = byte % 128
        if shift == 63 and bits > 1 then
            error({ what .. " has more than 64 bits" })
        end
        value = value:bor(UInt64.new(bits, 0):lshift(shift))
        if byte < 128 then
            return value, self.buffer(from, self.at - from)
        end
        shift = shift + 7
        if shift > 63 then
            error({ what .. " has more than 64 bits" })
        end
    end
end

-- An item whose length is known once its parts were read.
function Reader:begin(tree, name)
    if self:left() == 0 then
        error({ name .. " is cut short" })
    end
    return tree:add(fields[name], self.buffer(self.at, 1)), self.at
end

-- Adds a varint to the tree and gives its value; `most` is the greatest that a host accepts.
function Reader:number(tree, name, most)
    local value, range = self:varint(name)
    if most and value > most then
        error({ name .. " is out of range" })
    end
    tree:add(fields[name], range, value)
    return value
end

function Reader:sequence(tree, name)
    return self:number(tree, name, SEQUENCE_MAX)
end

-- Of a field that has 16 or 32 bits: those are plain numbers to Wireshark.
function Reader:small(tree, name, bits)
    local value, range = self:varint(name)
    if value:tonumber() >= 2 ^ bits then
        error({ name .. " is out of range" })
    end
    tree:add(fields[name], range, value:tonumber())
    return value:tonumber()
end

function Reader:fixed(tree, name, bytes)
    local range = self:take(bytes, name)
    tree:add_le(fields[name], range)
    return range
end

local function generated(tree, name, value)
    tree:add(fields[name], value):set_generated()
end

--- Frames

-- Pairs (missing present) after `received`; the runs that they name are above it. Gives the last of them.
local function runs(body, tree, received)
    local count = body:number(tree, "acknowledge.runs", UInt64.new(RUNS_MAX, 0))
    local last = received
    for _ = 1, count:tonumber() do
        local run, from = body:begin(tree, "run")
        local missing = body:sequence(run, "acknowledge.missing")
        local present = body:sequence(run, "acknowledge.present")
        if missing == UInt64.new(0, 0) or present == UInt64.new(0, 0) then
            error({ "an empty gap or run" })
        end
        local first = last + missing + UInt64.new(1, 0)
        last = first + present - UInt64.new(1, 0)
        if last > SEQUENCE_MAX then
            error({ "a run beyond the greatest sequence" })
        end
        generated(run, "acknowledge.first", first)
        generated(run, "acknowledge.last", last)
        run:set_len(body.at - from)
        run:append_text(" " .. tostring(first) .. "-" .. tostring(last))
    end
    return last
end

-- Flags, each bit that means something shown by itself. Gives the names of those that are set.
local function flags(body, tree, name)
    local range = body:fixed(tree, name .. ".flags", 1)
    local value, set = range:uint(), {}
    for place, bit in ipairs(BITS[name]) do
        tree:add(fields[name .. "." .. bit[1]], range)
        if math.floor(value / 2 ^ (place - 1)) % 2 == 1 then
            table.insert(set, bit[1])
        end
    end
    return set
end

-- What the sender holds of an incarnation that ended.
local function held(body, tree, name)
    local item, from = body:begin(tree, "held")
    local member = body:small(item, name .. ".member", 16)
    body:fixed(item, name .. ".incarnation", 8)
    local text = member .. ":" .. tostring(body:sequence(item, name .. ".prefix"))
    for _, flag in ipairs(flags(body, item, name)) do
        text = text .. " " .. flag
    end
    local count = body:number(item, name .. ".members", UInt64.new(MEMBERS_MAX, 0))
    for _ = 1, count:tonumber() do
        body:small(item, name .. ".of", 16)
    end
    item:set_len(body.at - from)
    item:append_text(" of member " .. text)
    return text
end

-- The tag of what comes first in a group or chunk: what follows it is the object's own.
local function first_tag(tree, name, range)
    local tag, bytes = range(0, 1):uint(), 1
    -- Seven bits a byte: from the sixteenth object on it has two.
    if tag >= 128 and range:len() > 1 then
        tag, bytes = tag - 128 + 128 * range(1, 1):uint(), 2
    end
    tree:add(fields[name .. ".object"], range(0, bytes), math.floor(tag / 8)):set_generated()
    tree:add(fields[name .. ".flags"], range(0, 1), tag % 8):set_generated()
end

local bodies = {}

bodies[1] = function(body, tree)
    local first = body:sequence(tree, "records.first")
    local one, sequence = UInt64.new(1, 0), first
    if first == UInt64.new(0, 0) or body:left() == 0 then
        error({ first == UInt64.new(0, 0) and "sequences begin at 1" or "no group" })
    end
    while body:left() > 0 do
        local length, range = body:varint("records.length")
        local bytes = length:tonumber()
        if bytes == 0 or bytes > GROUP_BYTES_MAX then
            error({ "a group of " .. tostring(length) .. " bytes" })
        end
        local group_bytes = body:take(bytes, "a group")
        local group = tree:add(fields["records.group"], group_bytes)
        generated(group, "records.sequence", sequence)
        group:add(fields["records.length"], range, length)
        first_tag(group, "records", group_bytes)
        sequence = sequence + one
    end
    -- As a host does, that keeps the sequence after the last within the bound too.
    if sequence > SEQUENCE_MAX then
        error({ "a group beyond the greatest sequence" })
    end
    generated(tree, "records.last", sequence - one)
    return tostring(first) .. "-" .. tostring(sequence - one)
end

bodies[2] = function(body, tree)
    local count = body:number(tree, "acknowledge.entries")
    local text = {}
    -- Each entry takes bytes, so that a count that is too great ends at the body's end.
    local left = count:tonumber()
    while left > 0 do
        left = left - 1
        local entry, from = body:begin(tree, "acknowledge.entry")
        local origin = body:small(entry, "acknowledge.origin", 16)
        local applied = body:sequence(entry, "acknowledge.applied")
        local received = applied + body:sequence(entry, "acknowledge.ahead")
        generated(entry, "acknowledge.received", received)
        if runs(body, entry, received) > SEQUENCE_MAX then
            error({ "received beyond the greatest sequence" })
        end
        entry:set_len(body.at - from)
        entry:append_text(" of member " .. origin .. ": applied " .. tostring(applied))
        table.insert(text, origin .. ":" .. tostring(applied))
    end
    return table.concat(text, " ")
end

bodies[3] = function(body, tree)
    local flags = body:fixed(tree, "keep_alive.flags", 1):uint()
    return flags % 2 == 1 and "wants an answer" or ""
end

bodies[4] = function(body, tree)
    local scan = body:small(tree, "snapshot.scan", 32)
    local index = body:small(tree, "snapshot.index", 32)
    local chunk = body:rest()
    if not chunk then
        error({ "no chunk" })
    end
    first_tag(tree:add(fields["snapshot.chunk"], chunk), "snapshot", chunk)
    return scan .. "/" .. index
end

bodies[5] = function(body, tree)
    local scan = body:small(tree, "snapshot_end.scan", 32)
    local chunks = body:small(tree, "snapshot_end.chunks", 32)
    if body:fixed(tree, "snapshot_end.covers", 1):uint() > 1 then
        error({ "an unknown kind of snapshot" })
    end
    local left = body:number(tree, "snapshot_end.streams"):tonumber()
    while left > 0 do
        left = left - 1
        body:small(tree, "snapshot_end.member", 16)
        body:sequence(tree, "snapshot_end.sequence")
    end
    return scan .. " of " .. chunks .. " chunks"
end

bodies[6] = function(body, tree)
    local scan = body:small(tree, "snapshot_acknowledge.scan", 32)
    local prefix = body:small(tree, "snapshot_acknowledge.prefix", 32)
    body:fixed(tree, "snapshot_acknowledge.bits", 8)
    local set = flags(body, tree, "snapshot_acknowledge")
    return scan .. "/" .. prefix .. (#set > 0 and " " .. set[#set] or "")
end

bodies[8] = function(body, tree)
    body:fixed(tree, "join.incarnation", 8)
end

bodies[9] = function(body, tree)
    local member = body:small(tree, "join_confirm.member", 16)
    body:fixed(tree, "join_confirm.incarnation", 8)
    return member .. " after " .. tostring(body:sequence(tree, "join_confirm.head"))
end

bodies[10] = function(body, tree)
    local left = body:number(tree, "join_vector.incarnations"):tonumber()
    local text = {}
    while left > 0 do
        left = left - 1
        table.insert(text, held(body, tree, "join_vector"))
    end
    return table.concat(text, ", ")
end

bodies[11] = function(body, tree)
    body:sequence(tree, "leave.head")
end

bodies[12] = function(body, tree)
    body:small(tree, "leave_confirm.member", 16)
    body:sequence(tree, "leave_confirm.applied")
end

bodies[13] = function(body, tree)
    return held(body, tree, "close")
end

bodies[128] = function(body, tree)
    local rest = body:rest()
    if rest then
        tree:add(fields["padding"], rest)
    end
end

bodies[130] = function(body, tree)
    local text = {}
    repeat
        table.insert(text, body:fixed(tree, "keys.id", 1):uint())
        body:fixed(tree, "keys.check", 4)
    until body:left() == 0
    if #text > KEYS_MAX then
        error({ "too many keys" })
    end
    return "accepts " .. table.concat(text, " ")
end

bodies[129] = function(body, tree)
    local turn = body:fixed(tree, "audit.turn", 1):uint()
    if turn > 1 then
        error({ "a reading that is neither first nor second" })
    end
    local number = body:small(tree, "audit.number", 32)
    body:fixed(tree, "audit.object", 1)
    if body:fixed(tree, "audit.segment", 1):uint() >= SEGMENTS then
        error({ "a segment that is none" })
    end
    local count = body:number(tree, "audit.members", UInt64.new(MEMBERS_MAX, 0))
    for _ = 1, count:tonumber() do
        body:sequence(tree, "audit.sequence")
    end
    if turn == 1 then
        body:fixed(tree, "audit.changed", 8)
        return number .. ", second reading"
    end
    for _ = 1, SEGMENT_LEAVES do
        body:fixed(tree, "audit.digest", 8)
    end
    return number .. ", first reading"
end

bodies[131] = function(body, tree)
    local sequence = body:sequence(tree, "stream.sequence")
    if sequence == UInt64.new(0) then
        error({ "a position before the first group" })
    end
    body:fixed(tree, "stream.digest", 8)
    return "up to " .. tostring(sequence)
end

-- Groups that a member asks the relay of its site for (`ask`), and those that the relay lacks (`lacks`).
local function asked(name)
    return function(body, tree)
        local count = 0
        repeat
            count = count + 1
            if count > ASKED_MAX then
                error({ "too many runs" })
            end
            body:small(tree, name .. ".origin", 16)
            local first = body:sequence(tree, name .. ".first")
            if first == UInt64.new(0, 0) then
                error({ "a run before the first group" })
            end
            local more = body:varint(name .. ".more")
            local last = first + more
            if more > SEQUENCE_MAX or last > SEQUENCE_MAX then
                error({ "a sequence beyond the greatest" })
            end
            generated(tree, name .. ".last", last)
        until body:left() == 0
        return count == 1 and "1 run" or count .. " runs"
    end
end
bodies[132] = asked("ask")
bodies[133] = asked("lacks")

bodies[135] = function(body, tree)
    body:fixed(tree, "placements.wanted", 8)
    local shared = body:fixed(tree, "placements.shared", 8):le_uint64()
    body:fixed(tree, "placements.last", 8)
    body:fixed(tree, "placements.ever", 8)
    body:fixed(tree, "placements.begun", 4)
    body:fixed(tree, "placements.covered", 4)
    return "shares " .. shared:tohex()
end

bodies[134] = function(body, tree)
    local settled = body:fixed(tree, "clock.flags", 1):uint() % 2 == 1
    local cluster = body:fixed(tree, "clock.cluster", 8):le_uint64()
    local date = body:fixed(tree, "clock.date", 8):le_uint64()
    if cluster > CLOCK_MAX or date > CLOCK_MAX then
        error({ "a time beyond the greatest" })
    end
    return settled and "settled" or ""
end

-- Runs `read`; what it raises as malformed becomes an expert's word at `tree`. Faults of this script stay faults.
local function guarded(tree, read)
    local good, result = pcall(read)
    if good then
        return result
    end
    if type(result) ~= "table" then
        error(result, 0)
    end
    tree:add_proto_expert_info(experts.malformed, "Malformed: " .. result[1])
    return nil
end

local function dissect_frame(message, tree)
    local from = message.at
    local frame = tree:add(fields["frame"], message.buffer(from, 1))
    -- Without kind and length nobody knows where the next frame begins.
    local whole = guarded(frame, function()
        local kind = message:fixed(frame, "frame.kind", 1):uint()
        local length, range = message:varint("frame.length")
        frame:add(fields["frame.length"], range, length)
        if length:tonumber() > message:left() then
            error({ "a length beyond the end" })
        end
        return { kind = kind, length = length:tonumber() }
    end)
    if not whole then
        frame:set_len(message.stop - from)
        message.at = message.stop
        return "malformed frame"
    end
    local body = reader(message.buffer, message.at, message.at + whole.length)
    message.at = body.stop
    frame:set_len(message.at - from)
    local name = KINDS[whole.kind]
    frame:set_text("Frame: " .. (name or "unknown kind " .. whole.kind))
    if not name then
        local rest = body:rest()
        if rest then
            frame:add(fields["skipped"], rest)
        end
        if whole.kind < 128 then
            frame:add_proto_expert_info(experts.future)
        end
        return "kind " .. whole.kind
    end
    local malformed = true
    local text = guarded(frame, function()
        local text = bodies[whole.kind](body, frame)
        if body:left() > 0 then
            error({ "bytes beyond the end of the body" })
        end
        malformed = false
        return text
    end)
    if malformed then
        return name .. " (malformed)"
    end
    return name .. (text and text ~= "" and " " .. text or "")
end

local function dissect_message(buffer, at, stop, tree)
    local item = tree:add(fields["message"], buffer(at, stop - at))
    local message = reader(buffer, at, stop)
    local refused
    local read = guarded(item, function()
        local version = message:fixed(item, "message.version", 1):uint()
        if version > VERSION then
            item:add_proto_expert_info(experts.future)
            refused = "version " .. version
            return nil
        elseif version < VERSION then
            error({ "version " .. version })
        end
        message:small(item, "message.cluster", 32)
        message:small(item, "message.epoch", 32)
        message:fixed(item, "message.timestamp", 8)
        message:sequence(item, "message.head")
        for _ = 1, message:fixed(item, "message.echoes", 1):uint() do
            local echo, from = message:begin(item, "echo")
            local member = message:small(echo, "echo.member", 16)
            message:fixed(echo, "echo.timestamp", 8)
            message:number(echo, "echo.held")
            echo:set_len(message.at - from)
            echo:append_text(" to member " .. member)
        end
        return true
    end)
    if not read then
        return refused or "malformed message"
    end
    local text = {}
    while message:left() > 0 do
        table.insert(text, dissect_frame(message, item))
    end
    return #text > 0 and table.concat(text, ", ") or "no frame"
end

--- Datagrams

local function dissect_handshake(buffer, at, stop, tree)
    local item = tree:add(fields["handshake.message"], buffer(at, stop - at))
    return guarded(item, function()
        local body = reader(buffer, at, stop)
        if body:left() < 32 then
            error({ "a handshake of " .. body:left() .. " bytes" })
        end
        local kind = HANDSHAKES[body:fixed(item, "handshake.kind", 1):uint()]
        if not kind then
            error({ "an unknown kind of handshake" })
        end
        body:take(1, "zero")
        local member = body:fixed(item, "handshake.to_member", 2):le_uint()
        body:fixed(item, "handshake.to_session", 4)
        body:fixed(item, "handshake.to_incarnation", 8)
        body:fixed(item, "handshake.nonce", 16)
        if body:left() > 0 then
            if kind ~= "Echo" or body:left() < 24 then
                error({ "a handshake of " .. 32 + body:left() .. " bytes" })
            end
            body:take(24, "terms")
            body:fixed(item, "handshake.terms", body:left())
        end
        return kind .. " to member " .. member
    end) or "malformed handshake"
end

local function dissect_datagram(buffer, at, stop, root)
    local tree = root:add(proto, buffer(at, stop - at))
    local first = buffer(at, 1):uint()
    local header = tree:add(fields["header"], buffer(at, HEADER_BYTES))
    header:add(fields["version"], buffer(at, 1), first % 128)
    header:add(fields["handshake"], buffer(at, 1), math.floor(first / 128))
    if first % 128 ~= VERSION then
        header:add_proto_expert_info(experts.future)
        return "version " .. first % 128
    end
    local clear = reader(buffer, at + 1, stop)
    clear:fixed(header, "key", 1)
    local member = clear:fixed(header, "member", 2):le_uint()
    clear:fixed(header, "cluster", 4)
    clear:fixed(header, "epoch", 4)
    clear:fixed(header, "session", 4)
    clear:fixed(header, "incarnation", 8)
    local counter = clear:fixed(header, "counter", 8):le_uint64()
    local who = "member " .. member .. " #" .. tostring(counter) .. ": "
    tree:append_text(", " .. who)
    local text
    -- A Retry is shorter than any handshake that holds a message, and nothing of it is sealed.
    if first >= 128 and stop - at == RETRY_BYTES then
        clear:fixed(tree, "retry.answers", TAG_BYTES)
        clear:fixed(tree, "retry.cookie", COOKIE_BYTES)
        clear:fixed(tree, "tag", TAG_BYTES)
        tree:append_text("Retry")
        return who .. "Retry"
    end
    if first >= 128 and stop - at > HANDSHAKE_BYTES and (stop - at) % 32 == COOKIE_BYTES then
        stop = stop - COOKIE_BYTES
        tree:add(fields["handshake.cookie"], buffer(stop, COOKIE_BYTES))
        clear = reader(buffer, clear.at, stop)
    end
    if first >= 128 then
        if clear:left() < SALT_BYTES + TAG_BYTES then
            tree:add_proto_expert_info(experts.malformed)
            return who .. "malformed handshake"
        end
        clear:fixed(tree, "salt", SALT_BYTES)
    end
    local from, tag = clear.at, buffer(stop - TAG_BYTES, TAG_BYTES)
    local bytes = stop - TAG_BYTES - from
    if tag:raw() ~= MARK then
        if bytes > 0 then
            tree:add(fields["sealed"], buffer(from, bytes))
        end
        tree:add(fields["tag"], tag)
        text = (first >= 128 and "sealed handshake" or "sealed") .. ", " .. bytes .. " bytes"
    else
        tree:add(fields["opened"], tag)
        if first >= 128 then
            text = dissect_handshake(buffer, from, stop - TAG_BYTES, tree)
        elseif bytes > 0 then
            text = dissect_message(buffer, from, stop - TAG_BYTES, tree)
        else
            tree:add_proto_expert_info(experts.malformed)
            text = "malformed message"
        end
    end
    tree:append_text(text)
    return who .. text
end

-- A frame around sealed datagrams that pass a relay: it begins with a zero, which no wire version is.
local function is_relay_frame(raw, at, stop)
    local next = at + RELAY_HEAD_BYTES
    if stop <= next or raw:byte(at + 1) ~= 0 or not RELAY_KINDS[raw:byte(at + 2)] then
        return false
    end
    while next < stop do
        if next + 2 > stop then
            return false
        end
        local length = raw:byte(next + 1) + raw:byte(next + 2) * 256
        next = next + 2 + length
        if length < HEADER_BYTES + TAG_BYTES or next > stop then
            return false
        end
    end
    return true
end

-- The length of all frames but the last, if the kernel joined several of one sender; else all of it.
local function relay_frame_length(raw)
    local head = raw:sub(1, RELAY_HEAD_BYTES)
    local found = raw:find(head, RELAY_HEAD_BYTES + 1, true)
    if not found then
        return #raw
    end
    local length = found - 1
    for at = 0, #raw - 1, length do
        local stop = math.min(at + length, #raw)
        if raw:sub(at + 1, at + RELAY_HEAD_BYTES) ~= head or not is_relay_frame(raw, at, stop) then
            return #raw
        end
    end
    return length
end

local function dissect_relay_frame(buffer, at, stop, root)
    local tree = root:add(proto, buffer(at, stop - at))
    local item = tree:add(fields["relay"], buffer(at, RELAY_HEAD_BYTES))
    local kind = buffer(at + 1, 1):uint()
    item:add(fields["relay.kind"], buffer(at + 1, 1), kind)
    item:add_le(fields["relay.member"], buffer(at + 2, 2))
    item:add_le(fields["relay.cluster"], buffer(at + 4, 4))
    local text = {}
    local next = at + RELAY_HEAD_BYTES
    while next < stop do
        local length = buffer(next, 2):le_uint()
        tree:add_le(fields["relay.length"], buffer(next, 2))
        table.insert(text, dissect_datagram(buffer, next + 2, next + 2 + length, tree))
        next = next + 2 + length
    end
    local who = RELAY_KINDS[kind] .. " by member " .. buffer(at + 2, 2):le_uint() .. ": "
    return who .. table.concat(text, " + ")
end

-- A sender hands the kernel several datagrams of one length as one, and a capture on its host sees them so. Their headers
-- differ in the counter alone, and in the key's id if the sender went over to another key. Gives the length of each but the
-- last; of other bytes, all of it.
local function segment_length(buffer)
    local all = buffer:raw()
    local version, alike = all:byte(1), all:sub(3, ALIKE_BYTES)
    local found = HEADER_BYTES + TAG_BYTES + 2
    repeat
        found = all:find(alike, found + 1, true)
    until not found or all:byte(found - 2) == version
    if not found then
        return #all
    end
    local length = found - 3
    local before = buffer(ALIKE_BYTES, 8):le_uint64()
    for at = length, #all - 1, length do
        local header = #all - at >= HEADER_BYTES + TAG_BYTES and all:byte(at + 1) == version
        if not header or all:sub(at + 3, at + ALIKE_BYTES) ~= alike then
            return #all
        end
        local counter = buffer(at + ALIKE_BYTES, 8):le_uint64()
        if counter <= before then
            return #all
        end
        before = counter
    end
    return length
end

function proto.dissector(buffer, pinfo, root)
    local all = buffer:reported_length_remaining()
    if buffer:len() < HEADER_BYTES + TAG_BYTES or buffer:len() < all then
        -- Not of this protocol, or cut short by the capture.
        return 0
    end
    pinfo.cols.protocol = "Asterism"
    local raw = buffer:raw()
    local framed = raw:byte(1) == 0
    local length = framed and relay_frame_length(raw) or segment_length(buffer)
    local text = {}
    for at = 0, buffer:len() - 1, length do
        local stop = math.min(at + length, buffer:len())
        if not framed then
            table.insert(text, dissect_datagram(buffer, at, stop, root))
        elseif is_relay_frame(raw, at, stop) then
            table.insert(text, dissect_relay_frame(buffer, at, stop, root))
        else
            root:add(proto, buffer(at, stop - at)):add_proto_expert_info(experts.malformed)
            table.insert(text, "malformed frame of a relay")
        end
    end
    if #text > 1 then
        root:add_proto_expert_info(experts.joined)
    end
    pinfo.cols.info = table.concat(text, " | ")
    return buffer:len()
end

--- Registration

-- The port of the examples: a cluster's own is in its configuration, so none is assigned.
proto.prefs.ports = Pref.range("UDP ports", "7400", "Ports of [cluster.member.NAME] address, such as 7400,7410-7419", 65535)

local udp = DissectorTable.get("udp.port")
local registered
local function register()
    local wanted = tostring(proto.prefs.ports)
    if wanted == registered then
        return
    end
    if registered and registered ~= "" then
        udp:remove(registered, proto)
    end
    if wanted ~= "" then
        udp:add(wanted, proto)
    end
    registered = wanted
end
proto.prefs_changed = register
register()
udp:add_for_decode_as(proto)

-- An opened datagram is known by its mark, on any port.
proto:register_heuristic("udp", function(buffer, pinfo, root)
    local bytes = buffer:len()
    if bytes < HEADER_BYTES + TAG_BYTES or buffer(bytes - TAG_BYTES, TAG_BYTES):raw() ~= MARK then
        return false
    end
    return proto.dissector(buffer, pinfo, root) > 0
end)
