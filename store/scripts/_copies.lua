-- _copies: the unfinished copies into a conversation's id.
-- `root` must be set.

-- Ends all of them, so that none is adopted. Returns {fork id, id of the sandbox ("" none), …}.
local function end_copies()
  local ended, copies = {}, redis.call('HGETALL', root .. ':copies')
  for i = 1, #copies, 2 do
    redis.call('SET', root .. ':ended:' .. copies[i], '', 'EX', 86400)
    ended[i], ended[i + 1] = copies[i], string.match(copies[i + 1], ' (.*)$')
  end
  redis.call('DEL', root .. ':copies')
  return ended
end
