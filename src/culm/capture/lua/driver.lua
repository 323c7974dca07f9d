-- Protocols of Wireshark: messages out of segments, and fields into its tree.

-- What is known of one direction of a connection, as of the bytes that come next.  Frames are
-- looked at again in any order, so each message remembers what was known before it.
local flows, known = {}, {}

local function draw(parent, fields, proto, tvb)
  for _, each in ipairs(fields) do
    local label = each.name == "" and "syntax" or each.name
    if each.text then
      label = label .. ": " .. each.text
    end
    local field, value = proto.numbers[each.name], each.number
    if field == nil or value == nil then
      field, value = proto.texts[each.name] or proto.other, each.text or each.name
    end
    local item = parent:add(field, tvb(each.at, each.size), value)
    item:set_text(label)
    if each.inside then
      draw(item, each.inside, proto, tvb)
    end
  end
end

local function unread(reader, from, fault)
  return { name = "unread", at = from, size = #reader.data - from, text = fault.bad }
end

-- What the packets of bymux carry of a channel: whole messages are drawn, the rest waits for more.
local function take_channel(state, carried, reader, tree, proto, tvb)
  local channel = proto.channels[carried.stream]
  if channel == nil or state.faults[carried.stream] then
    return
  end
  local before = state.rests[carried.stream] or ""
  local data = before .. reader.data:sub(carried.at + 1, carried.at + carried.size)
  local inner = reader_of(data)
  local whole = 0
  local good, fault = pcall(function()
    while inner:left() > 0 do
      channel(inner)
      whole = inner.at
    end
  end)
  if not good and type(fault) ~= "table" then
    error(fault, 0)
  end
  local shown = {}
  for _, each in ipairs(inner.fields) do
    if each.at + each.size <= whole then
      shown[#shown + 1] = each
    end
  end
  if fault and fault.bad then
    state.faults[carried.stream] = true
    shown[#shown + 1] = { name = "unread", at = whole, size = #data - whole, text = fault.bad }
    whole = #data
  end
  state.rests[carried.stream] = data:sub(whole + 1)
  if #data == 0 then
    return
  end
  local view = ByteArray.new(data, true):tvb("Stream " .. carried.stream)
  local item = tree:add(proto.other, view(0, #data), "stream")
  item:set_text("stream " .. carried.stream)
  draw(item, shown, proto, view)
end

local function copied(value)
  if type(value) ~= "table" then
    return value
  end
  local made = {}
  for key, each in pairs(value) do
    made[key] = copied(each)
  end
  return made
end

local function names_of(fields)
  local names = {}
  for _, each in ipairs(fields) do
    names[#names + 1] = each.name
  end
  return table.concat(names, " ")
end

local function flow_of(pinfo)
  local one = tostring(pinfo.src) .. ":" .. pinfo.src_port
  local other = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
  return one .. ">" .. other, other .. ">" .. one
end

local function dissector_of(proto, take)
  return function(tvb, pinfo, tree)
    local data = tvb:raw()
    local flow, back = flow_of(pinfo)
    flow, back = proto.name .. flow, proto.name .. back
    if flows[flow] == nil then
      local role = flows[back] and "server" or "client" -- who speaks first has made the connection
      flows[flow] = { role = role, step = 1, rests = {}, faults = {} }
    end
    pinfo.cols.protocol = proto.name
    local root = tree:add(proto.made, tvb())
    local at = 0
    while at < #data do
      local key = table.concat({ flow, pinfo.number, #data, at }, " ")
      if known[key] == nil then
        known[key] = copied(flows[flow])
      end
      local state = copied(known[key])
      local reader = reader_of(data, at)
      local carried
      local good, fault = pcall(function()
        if state.broken then
          bad("after a fault")
        end
        carried = take(reader, state)
      end)
      if good then
        draw(root, reader.fields, proto, tvb)
        if carried and proto.channels then
          take_channel(state, carried, reader, root, proto, tvb)
        end
        pinfo.cols.info:append(" " .. names_of(reader.fields))
        at = reader.at
      elseif fault == MORE and pinfo.can_desegment > 0 then
        known[key] = nil
        pinfo.desegment_offset = at
        pinfo.desegment_len = DESEGMENT_ONE_MORE_SEGMENT
        return #data
      elseif type(fault) == "table" then
        state.broken = true
        draw(root, { unread(reader, at, fault.bad and fault or { bad = "cut short" }) }, proto, tvb)
        at = #data
      else
        error(fault, 0)
      end
      flows[flow] = state
    end
    return #data
  end
end

-- Make a protocol, for "Decode as": no port is anybody's by itself.
local function register(name, title, transport, take, channels)
  local made, fields = Proto(name, title), {}
  local proto = { name = name, made = made, channels = channels, numbers = {}, texts = {} }
  local function field(part, kind)
    local short = part:gsub("%W", "_")
    fields[#fields + 1] = ProtoField[kind](name .. "." .. short, part)
    return fields[#fields]
  end
  for _, part in ipairs(TABLES.fields[name]) do
    local of_kind = part.kind == "string" and proto.texts or proto.numbers
    of_kind[part.name] = field(part.name, part.kind)
  end
  proto.other = field("other", "string")
  made.fields = fields
  made.dissector = dissector_of(proto, take)
  DissectorTable.get(transport .. ".port"):add_for_decode_as(made)
end

local YAMF = TABLES.families.YAMF

register("bymux", "bymux", "tcp", take_bymux)
register("point2point", "Bamboo Point-2-Point", "tcp", function(reader, state)
  if state.step == 1 then
    state.step = 2
    take_setup(reader)
    return nil
  end
  return take_bymux(reader)
end, {
  ["0"] = function(reader) take_control(reader, YAMF) end,
  ["1"] = function(reader) take_data(reader, YAMF) end,
})
register("garlic", "Garlic Farm", "tcp", take_garlic)
register("oxen", "Oxen", "udp", take_oxen)
register("p2panda", "p2panda", "tcp", take_p2panda)
register("muxrpc", "muxrpc of Secure Scuttlebutt", "tcp", take_muxrpc)
register("ssb_handshake", "Handshake of Secure Scuttlebutt", "tcp", take_ssb)
