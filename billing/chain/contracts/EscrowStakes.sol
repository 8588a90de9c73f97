// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {EscrowFunds} from "./EscrowFunds.sol";

/// @title Stakes: a provider's collateral, slashed within caps into a pool that compensates customers.
/// @dev Slashed money can reach customers only: no function pays the pool to the platform.
abstract contract EscrowStakes is EscrowFunds {
    uint64 public immutable unstakeSeconds;
    uint256 public immutable slashCapPerOffence;
    uint256 public immutable slashDailyCap;

    struct Stake {
        uint256 active;
        uint256 leaving;
        uint64 availableAt;
    }

    /// @notice Whether an offence was slashed; each is once.
    mapping(bytes32 offenceId => bool known) public offences;
    mapping(address provider => Stake) private _stakes;
    uint64 private _slashDay;
    uint256 private _slashedToday;

    constructor(Terms memory terms) {
        _checkPeriod(terms.unstakeSeconds);
        unstakeSeconds = terms.unstakeSeconds;
        slashCapPerOffence = terms.slashCapPerOffence;
        slashDailyCap = terms.slashDailyCap;
    }

    /// @notice Add to one's stake.
    /// @dev Reverts with ZeroAmount, UnexpectedBalance, EnforcedPause.
    function stake(uint256 amount) external nonReentrant whenNotPaused {
        uint256 received = _receive(amount);
        _stakes[msg.sender].active += received;
        totalStaked += received;
        emit Staked(msg.sender, received);
    }

    /// @notice Ask for `amount` of one's stake back; all that leaves waits from now on.
    /// @dev Reverts with ZeroAmount, ExceedsStake. Never paused.
    function requestUnstake(uint256 amount) external nonReentrant {
        Stake storage held = _stakes[msg.sender];
        if (amount == 0) revert ZeroAmount();
        if (amount > held.active) revert ExceedsStake();
        held.active -= amount;
        held.leaving += amount;
        held.availableAt = uint64(block.timestamp) + unstakeSeconds;
        emit UnstakeRequested(msg.sender, amount, held.availableAt);
    }

    /// @notice Take out what was asked for, after the wait.
    /// @dev Reverts with ZeroAmount when nothing leaves, TooEarly. Never paused.
    function unstake() external nonReentrant {
        Stake storage held = _stakes[msg.sender];
        uint256 amount = held.leaving;
        if (amount == 0) revert ZeroAmount();
        if (block.timestamp < held.availableAt) revert TooEarly();
        held.leaving = 0;
        totalStaked -= amount;
        emit Unstaked(msg.sender, amount);
        _send(msg.sender, amount);
    }

    /// @notice Take stake for an offence, also what is about to leave.
    /// @dev Reverts with ZeroAmount, OffenceKnown, ExceedsCap, ExceedsDailyCap in a UTC day, ExceedsStake.
    function slash(
        address provider,
        uint256 amount,
        bytes32 offenceId,
        bytes32 evidenceHash
    ) external nonReentrant onlyRole(SLASHER) {
        if (amount == 0) revert ZeroAmount();
        if (offences[offenceId]) revert OffenceKnown();
        if (amount > slashCapPerOffence) revert ExceedsCap();
        uint64 today = uint64(block.timestamp / 1 days);
        if (today != _slashDay) {
            _slashDay = today;
            _slashedToday = 0;
        }
        if (amount > slashDailyCap || _slashedToday > slashDailyCap - amount) revert ExceedsDailyCap();
        Stake storage held = _stakes[provider];
        if (amount > held.active + held.leaving) revert ExceedsStake();

        uint256 fromActive = amount < held.active ? amount : held.active;
        held.active -= fromActive;
        held.leaving -= amount - fromActive;
        offences[offenceId] = true;
        _slashedToday += amount;
        totalStaked -= amount;
        slashPool += amount;
        emit Slashed(provider, amount, offenceId, evidenceHash);
    }

    /// @notice Make up to a customer what an offence cost, from the slash pool.
    /// @dev Reverts with ZeroAmount, NotAllowed for the zero address and for an offence that was not slashed,
    /// InsufficientAvailable when the pool has less.
    function compensate(
        address customer,
        uint256 amount,
        bytes32 offenceId
    ) external nonReentrant onlyRole(ARBITER) {
        if (amount == 0) revert ZeroAmount();
        if (customer == address(0) || !offences[offenceId]) revert NotAllowed();
        if (amount > slashPool) revert InsufficientAvailable();
        slashPool -= amount;
        _credit(customer, amount);
        emit Compensated(customer, amount, offenceId);
    }

    /// @notice All of a provider's stake that can be slashed, what is about to leave included.
    function staked(address provider) external view returns (uint256) {
        Stake storage held = _stakes[provider];
        return held.active + held.leaving;
    }

    /// @notice What of a provider's stake is about to leave, and from when it can be taken.
    function unstaking(address provider) external view returns (uint256 amount, uint64 availableAt) {
        Stake storage held = _stakes[provider];
        return (held.leaving, held.availableAt);
    }
}
