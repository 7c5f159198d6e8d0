-- thaw_log: bring back the keys of a cold conversation's log. Nothing that clients see changes.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 name of the object that they come from   2 µs for which it is set aside
--       then two per key: its part of the name, ":log" …, its DUMP
-- Returns  1 | 0: it is not cold, or under another name
-- Cost  O(n log n): n events
-- Idempotent  by the object's name
-- Log  guarded here
-- Kept  not proven: no client sees where a log lies, and what is lost is done again
-- Brings  bytes
-- include: _clock.lua
local root = KEYS[1]
if redis.call('HGET', root, 'cold') ~= ARGV[1] then return 0 end

-- The append-only file and the replicas get the commands that write the elements. They never get the DUMP: another
-- program or release refuses its format when it loads the file, and would drop the key and go on.
local ELEMENTS = 500
local function replicated(what) if redis.set_repl then redis.set_repl(what) end end

local function write_in_pieces(command, key, elements)
    for first = 1, #elements, ELEMENTS do
        redis.call(command, key, unpack(elements, first, math.min(first + ELEMENTS - 1, #elements)))
    end
end

local function write(key, kind)
    redis.call('DEL', key)
    if kind == 'string' then
        redis.call('SET', key, redis.call('GET', root .. ':thaw'))
    elseif kind == 'list' then
        write_in_pieces('RPUSH', key, redis.call('LRANGE', root .. ':thaw', 0, -1))
    elseif kind == 'hash' then
        write_in_pieces('HSET', key, redis.call('HGETALL', root .. ':thaw'))
    elseif kind == 'set' then
        write_in_pieces('SADD', key, redis.call('SMEMBERS', root .. ':thaw'))
    elseif kind == 'zset' then
        local pairs_of = redis.call('ZRANGE', root .. ':thaw', 0, -1, 'WITHSCORES')
        for i = 1, #pairs_of, 2 do pairs_of[i], pairs_of[i + 1] = pairs_of[i + 1], pairs_of[i] end
        write_in_pieces('ZADD', key, pairs_of)
    else
        return redis.error_reply('ERR no part of a log is a ' .. kind)
    end
end

for i = 3, #ARGV, 2 do
    replicated(redis.REPL_NONE)
    local restored = redis.pcall('RESTORE', root .. ':thaw', 0, ARGV[i + 1], 'REPLACE')
    replicated(redis.REPL_ALL)
    if restored.err then return restored end
    local refused = write(root .. ARGV[i], redis.call('TYPE', root .. ':thaw').ok)
    replicated(redis.REPL_NONE)
    redis.call('DEL', root .. ':thaw')
    replicated(redis.REPL_ALL)
    if refused then return refused end
end
redis.call('HDEL', root, 'cold')
redis.call('HSET', root, 'aside_until', string.format('%.0f', now + ARGV[2]))
return 1
