-- copy_events: append events to the unfinished copy of a conversation, which expires unless adopt_fork renames its
-- keys.
-- KEYS  root of the copy, conv:{id}:fork:FORK
-- ARGV  utc:text now, with Z  seconds:int until the copy expires
--       events:(id:text pair:text at:micros event:bytes record:bytes may_be_final:flag)* KIND:SOURCE escaped, "" no
--       text
-- Returns  int: seq of the copy's last event | missing: the copy has expired
-- Cost  O(e log n + k): e events, n of the copy, k keys of it
-- Idempotent  by event id: a known event is skipped
-- Log  not guarded: a copy is never cold
-- Brings  bytes
-- include: _log.lua
if not open_log('') then return false end
local final_at = redis.call('HGET', root, 'final_at') or '-inf'
for id, pair, score, bytes, text, may_be_final in events() do
  if not seq_of(id, log.stored) then
    local seq = append_event(id, pair, score, bytes, text)
    if may_be_final and is_later(score, final_at) then
      final_at, log.fields.final_at, log.fields.final_seq = score, score, string.format('%d', seq)
    end
  end
end
close_log('copied', utc)
redis.call('EXPIRE', root, seconds)
for _, part in ipairs({':log', ':ids', ':seqs', ':pairs', ':peaks'}) do redis.call('EXPIRE', root .. part, seconds) end
for _, pair in ipairs(redis.call('SMEMBERS', root .. ':pairs')) do redis.call('EXPIRE', root .. ':at:' .. pair, seconds) end
for chunk = 0, log.chunk do redis.call('EXPIRE', root .. ':text:' .. chunk, seconds) end
return log.seq
