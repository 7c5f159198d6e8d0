-- copy_events: append events to the unfinished copy of a conversation, which expires unless adopt_fork renames its keys.
-- KEYS  1 root of the copy, conv:{id}:fork:FORK
-- ARGV  1 now, UTC text with Z   2 seconds until the copy expires
--       then six per event: id, "KIND:SOURCE" escaped, time in µs, bytes, text record ("" none), "1": it may be final
-- Returns  seq of the copy's last event | false: the copy has expired
-- Cost  O(e log n + k): e events, n of the copy, k keys of it
-- Idempotent  by event id: a known event is not copied again
-- Log  not guarded: a copy is never cold
-- Brings  bytes
-- include: _log.lua
local FIRST, STEP = 3, 6
if not open_log('') then return false end
local final_at = redis.call('HGET', root, 'final_at') or '-inf'
for i = FIRST, #ARGV, STEP do
  local id, pair, score, bytes, text, may_be_final = unpack(ARGV, i, i + STEP - 1)
  if not seq_of(id, log.stored) then
    local seq = append_event(id, pair, score, bytes, text)
    if may_be_final == '1' and is_later(score, final_at) then
      final_at, log.fields.final_at, log.fields.final_seq = score, score, string.format('%d', seq)
    end
  end
end
close_log('copied', ARGV[1])
redis.call('EXPIRE', root, ARGV[2])
for _, part in ipairs({':log', ':ids', ':seqs', ':pairs', ':peaks'}) do redis.call('EXPIRE', root .. part, ARGV[2]) end
for _, pair in ipairs(redis.call('SMEMBERS', root .. ':pairs')) do redis.call('EXPIRE', root .. ':at:' .. pair, ARGV[2]) end
for chunk = 0, log.chunk do redis.call('EXPIRE', root .. ':text:' .. chunk, ARGV[2]) end
return log.seq
