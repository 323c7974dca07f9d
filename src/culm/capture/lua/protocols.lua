-- What stands in the bytes of each protocol, by the tables of the codecs.

local function has_bits(number, bits)
  return bit.band(number, bits) == bits
end

local function has_any(number, bits)
  return bit.band(number, bits) ~= 0
end

local function binary(number)
  local digits = ""
  repeat
    digits = number % 2 .. digits
    number = math.floor(number / 2)
  until number == 0
  return "0b" .. digits
end

local BINARY = setmetatable({}, { __index = function(_, number) return binary(number) end })

-- Bamboo.

local function has_lipmaalink(seqnum)
  local middle, power, rest = 1, 3, seqnum
  while middle < seqnum do
    power = power * 3
    middle = (power - 1) / 2
  end
  power = power / 3
  if middle ~= seqnum then
    while rest ~= 0 do
      middle = (power - 1) / 2
      power = power / 3
      rest = rest % middle
    end
    power = middle
  end
  return power > 1
end

local function take_entry(reader, family, name)
  reader:group(name or "entry", function()
    reader:uint("tag", 1)
    reader:raw("author", TABLES.author_size)
    reader:varu64("log_id")
    local seqnum = reader:varu64("seqnum")
    if seqnum == 0 then
      bad("sequence number 0")
    end
    if has_lipmaalink(seqnum) then
      reader:hash("lipmaalink", family)
    end
    if seqnum > 1 then
      reader:hash("backlink", family)
    end
    reader:varu64("payload_size")
    reader:hash("payload_hash", family)
    reader:raw("signature", TABLES.signature_size)
  end)
end

-- bymux.

local function take_bymux(reader)
  local header = reader.data:byte(reader.at + 1)
  local layout = TABLES.bymux.layouts[header]
  if layout == nil then
    bad("unknown packet type")
  end
  local carried
  reader:group(layout.kind, function()
    reader:uint("header", 1, { [header] = layout.kind })
    local stream
    if layout.id > 0 then
      _, stream = reader:uint("stream_id", layout.id)
    end
    if layout.amount == 0 then
      return
    end
    local creates = layout.writes and stream == nil
    local amount = reader:uint(creates and "stream_id" or "amount", layout.amount)
    if layout.writes and not creates then
      carried = { stream = stream, at = reader.at, size = amount }
      reader:raw("data of stream " .. stream, amount)
    end
  end)
  return carried
end

-- Point-2-Point.

local P2P = TABLES.point2point

local function take_setup(reader)
  reader:group("setup", function()
    reader:uint("flags", 1, BINARY)
    reader:varu64("send_window_max")
    reader:varu64("receive_window_max")
  end)
end

local function take_eagerness(reader, flags)
  if bit.band(flags, P2P.eagerness) == P2P.eagerness_up_to then
    reader:varu64("payload_size_max")
  end
end

local function take_proposal(reader, family)
  local flags = reader:uint("flags", 1, BINARY)
  reader:varu64("request_id")
  reader:raw("author", TABLES.author_size)
  reader:varu64("log_id")
  reader:varu64("start")
  local lower
  if not has_any(flags, P2P.request_offset) then
    lower = reader:varu64("lower_certpool")
  end
  reader:varu64("size_min")
  reader:varu64("size_max")
  if lower ~= 1 then
    reader:hash("expected_hash", family)
  end
  take_eagerness(reader, flags)
  if has_any(flags, P2P.request_finite) then
    reader:varu64("end")
    reader:varu64("upper_certpool")
  end
  if has_any(flags, P2P.request_offset) then
    reader:varu64("start_offset")
  end
end

local GROUNDS = {
  HASH_MISMATCH = function(reader, family) take_entry(reader, family) end,
  END_OF_LOG = function(reader) reader:varu64("seqnum") end,
  FORK = function(reader, family)
    take_entry(reader, family, "first")
    take_entry(reader, family, "second")
  end,
}

local function take_control(reader, family)
  local first = reader.data:byte(reader.at + 1)
  reader:group("control", function(message)
    if first == 0 then
      message.name = "GRANT_CREDIT"
      reader:uint("type", 1)
      reader:varu64("amount")
    elseif first < 128 then
      message.name = "ADJUST"
      reader:uint("flags", 1, BINARY)
      reader:varu64("request_id")
      take_eagerness(reader, first)
      for _, number in ipairs(P2P.adjust_numbers) do
        if has_any(first, number.flag) then
          reader:varu64(number.name)
        end
      end
    elseif has_any(first, P2P.eagerness) then
      message.name = "PROPOSE"
      take_proposal(reader, family)
    else
      message.name = "CANCEL"
      local reason = P2P.reasons[first] or bad("unused byte of the control channel")
      reader:uint("reason", 1, P2P.reasons)
      reader:varu64("request_id")
      if GROUNDS[reason] then
        GROUNDS[reason](reader, family)
      end
    end
  end)
end

local function take_data(reader, family)
  local kind = P2P.packets[reader.data:byte(reader.at + 1)] or bad("unused byte of the data channel")
  reader:group(kind, function()
    reader:uint("type", 1, P2P.packets)
    if P2P.metadata[kind] then
      if reader:peek(#family.prefix) == family.prefix then
        reader:hash("backlink", family)
      end
      reader:varu64("payload_size")
      reader:hash("payload_hash", family)
      reader:raw("signature", TABLES.signature_size)
      return
    end
    local last
    for _, name in ipairs(P2P.numbers[kind] or {}) do
      last = reader:varu64(name)
    end
    if P2P.payloads[kind] then
      reader:raw(P2P.payloads[kind], last)
    end
  end)
end

-- Garlic Farm.

local GARLIC = TABLES.garlic

local function take_head(reader)
  reader:group("head", function()
    local name = "first line"
    while true do
      local start, stop = reader.data:find("\r\n", reader.at + 1, true)
      if start == nil then
        error(MORE, 0)
      end
      local size = stop - reader.at
      local line = reader.data:sub(reader.at + 1, start - 1)
      local field, value = line:match("^([^:]*):(.*)$")
      if name then
        reader:add(name, size, printable(line))
      elseif line == "" then
        reader:add("end of the head", size)
        return
      else
        local text = field and value:match("^%s*(.-)%s*$") or line
        reader:add(field or "line", size, printable(text))
      end
      name = nil
    end
  end)
end

local function take_server(reader)
  reader:group("server", function()
    local found = reader:struct(GARLIC.server)
    reader:text("endpoint", found[2])
  end)
end

local function take_configuration(reader)
  reader:struct(GARLIC.configuration)
  while reader:left() > 0 do
    take_server(reader)
  end
end

local VALUES = {
  APPLICATION = function(reader) reader:raw("value", reader:left()) end,
  CONFIGURATION = take_configuration,
  CLUSTER_SERVER = function(reader, kind)
    if kind == "REMOVE_SERVER_REQUEST" then
      reader:struct(GARLIC.removed)
    else
      take_server(reader)
    end
  end,
  LOG_PACK = function(reader) reader:raw("packed entries", reader:left()) end,
  SNAPSHOT_SYNC_REQUEST = function(reader)
    local found = reader:struct(GARLIC.snapshot)
    reader:group("configuration", function()
      reader:within(found[3], function() take_configuration(reader) end)
    end)
    found = reader:struct(GARLIC.chunk)
    reader:raw("data", found[2])
    reader:uint("done", 1, { [0] = "False", "True" })
  end,
}

local function take_log_entry(reader, kind)
  reader:group("entry", function(entry)
    local found = reader:struct(GARLIC.entry)
    entry.name = GARLIC.values[found[2]] or "entry"
    if GARLIC.values[found[2]] == nil then
      reader:raw("value", found[3])
      return
    end
    reader:within(found[3], function() VALUES[entry.name](reader, kind) end)
  end)
end

local function take_garlic(reader)
  for _, head in ipairs({ "GET ", "HTTP/" }) do
    local front = reader:peek(#head)
    if front == head:sub(1, #front) then
      take_head(reader)
      return
    end
  end
  local number = reader.data:byte(reader.at + 1)
  local kind = GARLIC.types[number] or bad("unknown message type")
  reader:group(kind, function()
    if not GARLIC.requests[number] then
      reader:struct(GARLIC.response)
      return
    end
    local found = reader:struct(GARLIC.request)
    local size = found[#found]
    size = size == 2 ^ 32 - 1 and 0 or size -- JRaft's -1: no entries
    reader:within(size, function()
      while reader:left() > 0 do
        take_log_entry(reader, kind)
      end
    end)
  end)
end

-- Oxen: XENC.

local function octets(reader, at)
  local start, stop, size = reader.data:find("^(%d+):", at + 1)
  if start == nil or stop > reader.limit then
    bad("no octets of XENC")
  end
  return stop, tonumber(size)
end

local function take_xenc(reader, name, before)
  before = before or 0
  local at = reader.at + before
  local first = reader.data:sub(at + 1, at + 1)
  if at >= reader.limit then
    reader:need(before + 1)
  elseif first == "l" or first == "d" then
    reader:group(name, function()
      reader:add("", before + 1)
      local index = 0
      while reader:peek(1) ~= "e" do
        if first == "l" then
          take_xenc(reader, tostring(index))
        else
          local stop, size = octets(reader, reader.at)
          local key = reader.data:sub(stop + 1, stop + size)
          take_xenc(reader, key, stop - reader.at + size)
        end
        index = index + 1
      end
      reader:add("", 1)
    end)
  elseif first:match("%d") then
    local stop, size = octets(reader, at)
    reader:need(stop - reader.at + size)
    reader:add(name, stop - reader.at + size, printable(reader.data:sub(stop + 1, stop + size)))
  else
    local _, stop = reader.data:find("^i%-?%d+e", at + 1)
    if stop == nil then
      _, stop = reader.data:find("^t%-?%d+%.%d+e", at + 1)
    end
    if stop == nil then
      bad("no value of XENC")
    end
    reader:add(name, stop - reader.at, reader.data:sub(at + 2, stop - 1))
  end
end

local function take_oxen(reader)
  if reader:peek(1) == "d" then
    take_xenc(reader, "parcel")
    return
  end
  reader:group("sealed", function()
    for _, part in ipairs(TABLES.oxen.nonce) do
      if part.size <= 8 then
        reader:uint(part.name, part.size)
      else
        reader:raw(part.name, part.size)
      end
    end
    reader:raw("box", reader:left())
  end)
end

-- p2panda: CBOR.

local take_cbor

local function cbor_head(reader, before)
  before = before or 0
  reader:need(before + 1)
  local first = reader.data:byte(reader.at + before + 1)
  local kind, short = math.floor(first / 32), first % 32
  if short < 24 then
    return kind, short, 1, tostring(short), short
  elseif short > 27 then
    bad("no item of CBOR")
  end
  local size = 2 ^ (short - 24)
  reader:need(before + 1 + size)
  local at = reader.at + before + 1
  local number, digits = number_of(reader.data:sub(at + 1, at + size))
  return kind, number, 1 + size, digits, short
end

local SIMPLE = { [20] = "False", [21] = "True", [22] = "None" }

-- The text of an item without parts, and its size.
local function cbor_scalar(reader, before)
  local kind, number, size, digits, short = cbor_head(reader, before)
  if kind == 0 then
    return digits, size
  elseif kind == 1 then
    return string.format("%.0f", -1 - number), size
  elseif kind == 2 or kind == 3 then
    reader:need((before or 0) + size + number)
    local at = reader.at + (before or 0) + size
    return reader.data:sub(at + 1, at + number), size + number
  elseif kind == 7 and SIMPLE[number] then
    return SIMPLE[number], size
  elseif kind == 7 and short == 27 then
    local at = reader.at + (before or 0) + 1
    return string.format("%.17g", Struct.unpack(">d", reader.data:sub(at + 1, at + 8))), size
  end
  bad("an item of CBOR that has no place here")
end

function take_cbor(reader, name, names, inner)
  local kind, number, size = cbor_head(reader)
  if kind == 4 or kind == 5 then
    reader:group(name, function()
      reader:add("", size)
      for index = 1, number do
        if kind == 4 then
          take_cbor(reader, names[index] or tostring(index - 1), {}, inner)
        else
          local key, key_size = cbor_scalar(reader)
          local shown = printable(key)
          reader:group(shown, function()
            reader:add("", key_size)
            take_cbor(reader, shown, {}, inner)
          end)
        end
      end
    end)
  elseif kind == 2 and inner[name] then
    reader:group(name, function()
      reader:add("", size)
      reader:within(number, function() inner[name](reader) end)
    end)
  elseif kind == 2 then
    local text, all = cbor_scalar(reader)
    reader:add(name, all, hexadecimal(text))
  else
    local text, all = cbor_scalar(reader)
    reader:add(name, all, printable(text))
  end
end

local PANDA = TABLES.p2panda

local function take_operation(reader)
  local action = PANDA.actions[reader:peek(3):byte(3)]
  take_cbor(reader, action and action.name or "operation", action and action.items or {}, {})
end

local PANDA_INNER = {
  entry = function(reader) take_entry(reader, TABLES.families.YASMF) end,
  operation = take_operation,
}

local function take_p2panda(reader)
  local front = reader:peek(3)
  local number = front:byte(2) == 0x18 and front:byte(3) or front:byte(2)
  local message = PANDA.messages[number]
  local name = message and message.name or "message"
  reader:group(name, function()
    take_cbor(reader, name, message and message.items or {}, PANDA_INNER)
  end)
end

-- Secure Scuttlebutt: muxrpc, JSON.

local function string_end(data, at)
  repeat
    local found = data:find('["\\]', at + 1)
    if found == nil then
      return nil
    end
    if data:sub(found, found) == '"' then
      return found
    end
    at = found + 1
  until false
end

local function take_json(reader, name, before)
  local data = reader.data
  local at = reader.at + before
  local _, begin = data:find("^[%s,]*[%[{]", at + 1)
  if begin == nil or begin > reader.limit then
    local _, start = data:find("^[%s,]*", at + 1)
    local stop
    if data:sub(start + 1, start + 1) == '"' then
      stop = string_end(data, start + 1)
    else
      _, stop = data:find("^[^%s,%]}]+", start + 1)
      stop = stop and math.min(stop, reader.limit)
    end
    if stop == nil or stop > reader.limit then
      bad("no JSON")
    end
    reader:add(name, stop - reader.at, printable(data:sub(start + 1, stop)))
    return
  end
  local is_object = data:sub(begin, begin) == "{"
  reader:group(name, function()
    reader:add("", begin - reader.at)
    local index = 0
    while data:find("^%s*[%]}]", reader.at + 1) == nil do
      if reader:left() == 0 then
        bad("no JSON")
      end
      local key, size = tostring(index), 0
      if is_object then
        local _, quote = data:find('^[%s,]*"', reader.at + 1)
        local stop = quote and string_end(data, quote) or bad("no JSON")
        key = data:sub(quote + 1, stop - 1)
        _, stop = data:find("^%s*:", stop + 1)
        size = (stop or bad("no JSON")) - reader.at
      end
      take_json(reader, printable(key), size)
      index = index + 1
    end
    local _, stop = data:find("^%s*[%]}]", reader.at + 1)
    reader:add("", stop - reader.at)
  end)
end

local MUXRPC = TABLES.muxrpc

local function take_muxrpc(reader)
  reader:need(#MUXRPC.goodbye)
  if reader:peek(#MUXRPC.goodbye) == MUXRPC.goodbye then
    reader:raw("GOODBYE", #MUXRPC.goodbye)
    return
  end
  reader:group("packet", function(packet)
    local flags = MUXRPC.flags[reader.data:byte(reader.at + 1)] or bad("bad body type")
    reader:uint("flags", 1, MUXRPC.flags)
    local size = reader:uint("body_size", 4)
    reader:int("request", 4)
    reader:need(size)
    local body = reader:peek(size)
    if flags:match("JSON$") and size > 0 then
      reader:within(size, function()
        take_json(reader, "body", 0)
        if reader:left() > 0 then
          reader:add("", reader:left())
        end
        local is_message = body:find('"author"', 1, true) and body:find('"signature"', 1, true)
        packet.name = is_message and "message" or body:sub(1, 3) == '{"@' and "notes" or "packet"
      end)
    elseif flags:match("TEXT$") then
      reader:text("body", size)
    else
      reader:raw("body", size)
    end
  end)
end

-- The handshake of Secure Scuttlebutt, and the boxes after it, which only their ends can open.

local function take_ssb(reader, state)
  local step = MUXRPC.handshake[state.role][state.step]
  if step == nil then
    reader:raw("boxes", reader:left())
    return
  end
  reader:group(step.name, function()
    for _, part in ipairs(step.parts) do
      reader:raw(part.name, part.size)
    end
  end)
  state.step = state.step + 1
end
