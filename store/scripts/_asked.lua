-- _asked: actions that an asker awaits, which is an agent in a terminal. The record of such an action has `ask`:
-- {kind = "permission" | "gate", order = "races" | "first", subagent = its id, "" none, lease = seconds,
-- ends = µs as text until which the asker waits for an answer, lapses = µs as text: end of its lease,
-- handed = true: the asker has stopped waiting, and only the terminal can answer}
-- include: _clock.lua
local TERMINAL_SECONDS = 86400 -- for which a question for the terminal alone is shown

local function after_seconds(seconds) return string.format('%.0f', now + seconds * 1000000) end

-- Expires a gate when its asker stops waiting, because it has no terminal.
local function end_gate(action)
  local ask = action.ask
  if not ask or ask.kind ~= 'gate' then return end
  if not action.expires or tonumber(ask.ends) < tonumber(action.expires) then action.expires = ask.ends end
end

-- Returns whether the asker has stopped waiting within its lease.
local function has_ended(ask)
  return ask.handed or (ask.kind ~= 'gate' and tonumber(ask.ends) <= tonumber(now) and tonumber(ask.ends) <= tonumber(ask.lapses))
end

-- Leaves an action to its terminal.
local function hand_to_terminal(ask)
  ask.handed, ask.lapses = true, string.format('%.0f', ask.ends + TERMINAL_SECONDS * 1000000)
end

-- Returns when an undecided action is due, µs as text; nil: never.
local function due_of(action)
  local ask, due = action.ask, action.expires
  if not ask then return due end
  local first = ask.lapses
  if not ask.handed and tonumber(ask.ends) < tonumber(first) then first = ask.ends end
  return (not due or tonumber(first) < tonumber(due)) and first or due
end
