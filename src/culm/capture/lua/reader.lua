-- Fields, and the reader that splits bytes into them: as `culm.capture.dissect.fields` does.
-- Nothing is drawn before a message is whole, so a field is a table until then.

local MORE = {} -- raised where the bytes end before the message does

local function bad(what)
  error({ bad = what }, 0)
end

local SHOWN = 48 -- bytes of a text or of raw bytes in a label

local function printable(text)
  local shown = text:sub(1, SHOWN):gsub("[^\32-\126]", function(c)
    return string.format("\\x%02x", c:byte())
  end)
  return #text > SHOWN and shown .. "..." or shown
end

local function hexadecimal(bytes)
  local shown = bytes:sub(1, SHOWN):gsub(".", function(c)
    return string.format("%02x", c:byte())
  end)
  return #bytes > SHOWN and shown .. "..." or shown
end

-- A number of up to 8 bytes: as Lua has it, which is exact up to 2^53, in decimal digits, and whole.
local function number_of(bytes)
  local number, low, high = 0, 0, 0
  for index = 1, #bytes do
    if #bytes - index >= 4 then
      high = high * 256 + bytes:byte(index)
    else
      low = low * 256 + bytes:byte(index)
    end
  end
  for index = 1, #bytes do
    number = number * 256 + bytes:byte(index)
  end
  local exact = UInt64.new(low, high)
  return number, tostring(exact), exact
end

local Reader = {}
Reader.__index = Reader

local function reader_of(data, at)
  local fields = {}
  return setmetatable({
    data = data, at = at or 0, limit = #data, whole = false, fields = fields, open = { fields },
  }, Reader)
end

function Reader:left()
  return self.limit - self.at
end

function Reader:peek(size)
  return self.data:sub(self.at + 1, math.min(self.at + size, self.limit))
end

function Reader:need(size)
  if size > self:left() then
    if self.whole then
      bad("cut short")
    end
    error(MORE, 0)
  end
end

-- Let the next bytes be a field.
function Reader:add(name, size, text, number)
  self:need(size)
  if size > 0 then
    local inside = self.open[#self.open]
    inside[#inside + 1] = { name = name, at = self.at, size = size, text = text, number = number }
    self.at = self.at + size
  end
end

function Reader:raw(name, size)
  self:need(size)
  local taken = self:peek(size)
  self:add(name, size, hexadecimal(taken))
  return taken
end

function Reader:text(name, size)
  self:need(size)
  local taken = self:peek(size)
  self:add(name, size, printable(taken))
  return taken
end

-- Take a number, big-endian; `names` says what to show of it.
function Reader:uint(name, size, names)
  self:need(size)
  local number, digits, exact = number_of(self:peek(size))
  self:add(name, size, names and names[number] or digits, exact)
  return number, digits
end

function Reader:int(name, size)
  self:need(size)
  local number = number_of(self:peek(size))
  local limit = 2 ^ (8 * size - 1)
  number = number >= limit and number - 2 * limit or number
  self:add(name, size, string.format("%.0f", number), number)
  return number
end

function Reader:varu64(name)
  self:need(1)
  local first = self.data:byte(self.at + 1)
  if first < TABLES.varu64_first then
    self:add(name, 1, tostring(first), UInt64.new(first, 0))
    return first, tostring(first)
  end
  local size = first - TABLES.varu64_first + 2
  self:need(size)
  local number, digits, exact = number_of(self.data:sub(self.at + 2, self.at + size))
  self:add(name, size, digits, exact)
  return number, digits
end

function Reader:hash(name, family)
  self:need(#family.prefix)
  if self:peek(#family.prefix) ~= family.prefix then
    bad("no hash of this family")
  end
  return self:raw(name, family.size)
end

function Reader:struct(layout)
  local found = {}
  for index, part in ipairs(layout) do
    local take = part.signed and self.int or self.uint
    found[index] = take(self, part.name, part.size)
  end
  return found
end

-- Let all fields that `take` takes be parts of one, which it may name.
function Reader:group(name, take)
  local group = { name = name, at = self.at, inside = {} }
  self.open[#self.open + 1] = group.inside
  take(group)
  self.open[#self.open] = nil
  group.size = self.at - group.at
  if #group.inside > 0 then
    local outer = self.open[#self.open]
    outer[#outer + 1] = group
  end
end

-- Take no more than `size` bytes, and all of them.
function Reader:within(size, take)
  self:need(size)
  local limit, whole, depth = self.limit, self.whole, #self.open
  local inside = self.open[depth]
  local count, start = #inside, self.at
  self.limit, self.whole = self.at + size, true
  local good, fault = pcall(take)
  if not good then
    if type(fault) ~= "table" or not fault.bad then
      error(fault, 0)
    end
    for index = #self.open, depth + 1, -1 do
      self.open[index] = nil
    end
    for index = #inside, count + 1, -1 do
      inside[index] = nil
    end
    self.at = start
    self:add("unread", size, fault.bad)
  elseif self:left() > 0 then
    self:raw("more bytes", self:left())
  end
  self.limit, self.whole = limit, whole
end
