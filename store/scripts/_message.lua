-- _message: what a user's message does to a conversation. Needs _log.
local RESETS = {finished = true, stuck = true, waiting_for_confirmation = true}

local function append_message(stamp, id, pair, bytes, text, run, reason)
  local actions = log.status == 'waiting_for_confirmation' and open_actions() or {}
  if #actions > 0 then
    stamp = reject_actions(actions, reason, stamp)
  elseif RESETS[log.status] and not run then
    set_status('idle', stamp)
  end
  append_event(id, pair, stamp.score, bytes, text)
  redis.call('HSET', root, 'last_user_message_id', id)
  if run and log.status ~= 'running' then set_status('running', stamp) end
end
