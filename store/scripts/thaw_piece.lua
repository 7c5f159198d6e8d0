-- thaw_piece: put a piece of a cold conversation's log aside, until adopt_thaw makes all of it current. Nothing that
-- clients see changes.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 name of the object that it comes from   2 number of the piece, from 0
--       3 ms after which all that is aside ends, unless a further piece comes
--       then per range: part of the name of its key, ":log" …, number of its words, the words
-- Returns  number of the pieces that are aside: the next one to put there | false: it is not cold, or under another name
-- Cost  O(w log n + k): w words, n of their key, k keys of the log
-- Idempotent  by the object's name and the piece's number: a piece that is aside, or comes too early, changes nothing
-- Log  guarded here
-- Kept  not proven: no client sees where a log lies, and what is lost is done again
-- Brings  bytes
-- include: _freeze.lua
local MOST_WORDS = 4000 -- of one call: Lua's stack holds 8,000 values
local FIRST = 4
local COMMANDS = {log = 'RPUSH', seqs = 'HSET', ids = 'HSET', peaks = 'ZADD', at = 'ZADD', text = 'APPEND'}
local cold, last_chunk = unpack(redis.call('HMGET', root, 'cold', 'text_chunk'))
if cold ~= ARGV[1] then return false end
local aside = ':thaw:' .. ARGV[1]
local number = tonumber(redis.call('GET', root .. aside) or 0)
if number ~= tonumber(ARGV[2]) then return number end
local at = FIRST
while at <= #ARGV do
  local key, last = root .. aside .. ARGV[at], at + 1 + tonumber(ARGV[at + 1])
  local command = COMMANDS[string.match(ARGV[at], '^:(%a+)')]
  for first = at + 2, last, MOST_WORDS do
    redis.call(command, key, unpack(ARGV, first, math.min(first + MOST_WORDS - 1, last)))
  end
  at = last + 1
end
redis.call('SET', root .. aside, number + 1, 'PX', ARGV[3])
for _, part in ipairs(all_parts(last_chunk)) do redis.call('PEXPIRE', root .. aside .. part, ARGV[3]) end
return number + 1
