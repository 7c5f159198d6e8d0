-- thaw_piece: stage a piece of a cold conversation's log, until adopt_thaw adopts all of it.
-- Nothing that clients see changes.
-- KEYS  root of the conversation
-- ARGV  name:text of its object  piece:int its number, from 0
--       span:int ms after which all that is staged expires, unless another piece follows
--       ranges:words* of each the suffix of the key, ":log" …, the number of its words, and the words
-- Returns  int: number of staged pieces, which is the number of the next piece
--          | missing: it is not cold, or is under another name
-- Cost  O(w log n + k): w words, n of their key, k keys of the log
-- Idempotent  by the object's name and the piece's number: a piece that is staged, or comes too early, changes nothing
-- Log  guarded here
-- Kept  not proven: a lost step is repeated
-- Brings  bytes
-- include: _freeze.lua
local MOST_WORDS = 4000 -- per call: Lua's stack holds 8,000 values
local COMMANDS = {log = 'RPUSH', seqs = 'HSET', ids = 'HSET', peaks = 'ZADD', at = 'ZADD', text = 'APPEND'}
local cold, last_chunk = unpack(redis.call('HMGET', root, 'cold', 'text_chunk'))
if cold ~= name then return false end
local aside = ':thaw:' .. name
local number = tonumber(redis.call('GET', root .. aside) or 0)
if number ~= piece then return number end
local at = 1
while at <= #ranges do
  local key, last = root .. aside .. ranges[at], at + 1 + tonumber(ranges[at + 1])
  local command = COMMANDS[string.match(ranges[at], '^:(%a+)')]
  for first = at + 2, last, MOST_WORDS do
    redis.call(command, key, unpack(ranges, first, math.min(first + MOST_WORDS - 1, last)))
  end
  at = last + 1
end
redis.call('SET', root .. aside, number + 1, 'PX', span)
for _, part in ipairs(all_parts(last_chunk)) do redis.call('PEXPIRE', root .. aside .. part, span) end
return number + 1
