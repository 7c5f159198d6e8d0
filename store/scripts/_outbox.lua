-- _outbox: entries for notifications, pushed by the script that causes them.
-- See `store/notifications.py`.
local MOST_OUTBOX = 10000

-- Pushes an entry if a supervisor has targets. A full outbox drops its oldest entry, and counts it.
local function push_outbox(root, entry)
  if redis.call('EXISTS', root .. ':outbox:wanted') == 0 then return end
  if redis.call('RPUSH', root .. ':outbox', cjson.encode(entry)) > MOST_OUTBOX then
    redis.call('LPOP', root .. ':outbox')
    redis.call('INCR', root .. ':outbox:dropped')
  end
end
